"""Tiles of convolutions: as many results as the processor's registers hold, summed up in them.

A tile is what the compiler would not find by itself: vectors of a chosen length, of which each
sum has its own through the whole loop.  All addresses and distances are in bytes.
"""

import functools
from collections.abc import Callable
from typing import Any

from fdbr.compiler.backends.cpu.kernel_functions import intrinsic
from fdbr.compiler.backends.cpu.llvm_text import Builder
from fdbr.compiler.backends.cpu.llvm_values import Value
from fdbr.compiler.backends.cpu.vector_text import Vectors

__all__ = ["NAMES"]


def product(code: str, outputs: int, wide: int) -> Any:
    """Compute a tile of a correlation.

    ``out[o, i] = bias[o] + sum(weights[o, weight_offsets[k]] * x[offsets[k] + i])`` for each of
    some outputs ``o`` and vectors ``i``, with the sum over ``count`` numbers ``k``.
    """

    @intrinsic
    def tile(
        builder: Builder,
        x: Value,
        offsets: Value,
        weights: Value,
        weight_offsets: Value,
        step: Value,
        out: Value,
        out_step: Value,
        bias: Value,
        count: Value,
    ) -> None:
        v = Vectors(builder, code)
        slots = [v.slots(wide, v.spread(v.number(bias, o * v.size))) for o in range(outputs)]
        steps = [v.times(o, step) for o in range(outputs)]
        with builder.loop("0", count.text) as index:
            at = v.times(8, index)
            place = v.moved(x, v.word(offsets, at))
            weight = v.moved(weights, v.word(weight_offsets, at))
            vectors = [v.load(place, i * v.bytes) for i in range(wide)]
            for o in range(outputs):
                factor = v.spread(v.number(weight, steps[o]))
                for slot, vector in zip(slots[o], vectors, strict=True):
                    v.add_product(slot, factor, vector)
        for o in range(outputs):
            row = v.stepped(out, out_step, o)
            for i, slot in enumerate(slots[o]):
                v.store(v.get(slot), row, i * v.bytes)

    return tile


def inner(code: str, outputs: int, wide: int) -> Any:
    """Compute a tile of inner products.

    ``out[o, k] = sum(y[o, rows_of_y[r] + j] * x[offsets[k] + rows[r] + j])`` with the sum over
    rows and the ``length`` numbers ``j`` of each.
    """

    @intrinsic
    def tile(
        builder: Builder,
        x: Value,
        offsets: Value,
        x_rows: Value,
        y: Value,
        y_step: Value,
        y_rows: Value,
        first: Value,
        last: Value,
        length: Value,
        out: Value,
    ) -> None:
        v = Vectors(builder, code)
        slots = [v.slots(wide) for _ in range(outputs)]
        places = [v.moved(x, v.word(offsets, 8 * i)) for i in range(wide)]
        count = builder.add(f"udiv {length.typed}, {v.count}")
        rest = builder.add(f"urem {length.typed}, {v.count}")

        def add_products(x_row: str, y_row: str, at: str, load: Callable[..., str]) -> None:
            ys = [load(v.stepped(y_row, y_step, o), at) for o in range(outputs)]
            for i in range(wide):
                vector = load(v.moved(places[i], x_row), at)
                for o in range(outputs):
                    v.add_product(slots[o][i], ys[o], vector)

        with builder.loop(first.text, last.text) as row:
            x_row = v.word(x_rows, v.times(8, row))
            y_row = v.moved(y, v.word(y_rows, v.times(8, row)))
            with builder.loop("0", count) as index:
                add_products(x_row, y_row, v.times(v.bytes, index), v.load)
            with builder.where(builder.add(f"icmp ne i64 {rest}, 0")):
                load = functools.partial(v.load_some, rest)
                add_products(x_row, y_row, v.times(v.bytes, count), load)
        for o in range(outputs):
            for i, slot in enumerate(slots[o]):
                v.store_number(v.total(v.get(slot)), out, (o * wide + i) * v.size)

    return tile


NAMES = {"inner": inner, "product": product}
"""The names that sources of convolutions may use."""
