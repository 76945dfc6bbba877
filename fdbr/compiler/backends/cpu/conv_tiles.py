# mypy: disable-error-code="no-untyped-def"
"""Tiles of convolutions: as many results as the processor's registers hold, summed up in them.

A tile is what the compiler would not find by itself: vectors of a chosen length, of which each
sum has its own through the whole loop.  All addresses and distances are in bytes.
"""

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fdbr.compiler.backends.cpu.vectors import lanes
from fdbr.kernels.machine import vector_bytes

__all__ = ["inner", "product", "take", "word"]

_WORD = ir.IntType(64)
_REALS = {"f4": (ir.FloatType(), 4), "f8": (ir.DoubleType(), 8)}


class _Builder:
    """The instructions of a tile."""

    def __init__(self, builder: Any, code: str) -> None:
        self.builder = builder
        self.real, self.size = _REALS[code]
        self.vector = ir.VectorType(self.real, lanes(code))
        self.suffix = f"v{lanes(code)}f{8 * self.size}"

    def call(self, name: str, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(
            self.builder.module, kind, f"llvm.{name}.{self.suffix}"
        )
        return self.builder.call(function, args)

    def at(self, address: Any, offset: Any, kind: Any) -> Any:
        offset = _WORD(offset) if isinstance(offset, int) else offset
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def load(self, address: Any, offset: Any, kind: Any) -> Any:
        align = 8 if kind is _WORD else self.size
        return self.builder.load(self.at(address, offset, kind), align=align)

    def store(self, value: Any, address: Any, offset: Any) -> None:
        self.builder.store(value, self.at(address, offset, value.type), align=self.size)

    def spread(self, number: Any) -> Any:
        """A vector of one number."""
        none = ir.Constant(self.vector, ir.Undefined)
        places = ir.VectorType(ir.IntType(32), self.vector.count)
        one = self.builder.insert_element(none, number, ir.IntType(32)(0))
        return self.builder.shuffle_vector(one, none, ir.Constant(places, None))

    def slots(self, count: int) -> list[Any]:
        """Vectors that change: the compiler finds a register for each."""
        return [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]

    def add_product(self, slot: Any, a: Any, b: Any) -> None:
        total = self.call("fma", self.vector, a, b, self.builder.load(slot))
        self.builder.store(total, slot)

    def times(self, factor: int, value: Any) -> Any:
        return self.builder.mul(value, _WORD(factor))


@intrinsic
def word(typingctx, table, index):
    """An integer of a table."""

    def generate(context, builder, signature, args):
        address = builder.add(args[0], builder.mul(args[1], _WORD(8)))
        return builder.load(builder.inttoptr(address, _WORD.as_pointer()))

    return types.intp(types.intp, types.intp), generate


@intrinsic
def take(typingctx, table, index):
    """The integer of a table, which is one more for the next thread that takes it."""

    def generate(context, builder, signature, args):
        address = builder.add(args[0], builder.mul(args[1], _WORD(8)))
        counter = builder.inttoptr(address, _WORD.as_pointer())
        return builder.atomic_rmw("add", counter, _WORD(1), "monotonic")

    return types.intp(types.intp, types.intp), generate


@functools.cache
def product(code, outputs, wide, positive):
    """What computes a tile of a correlation, or of what `relu` makes of it.

    ``out[o, i] = bias[o] + sum(weights[o, weight_offsets[k]] * x[offsets[k] + i])`` for each of
    some outputs ``o`` and vectors ``i``, with the sum over ``count`` numbers ``k``.
    """

    @intrinsic
    def tile(typingctx, x, offsets, weights, weight_offsets, step, out, out_step, bias, count):
        def generate(context, builder, signature, args):
            x, offsets, weights, weight_offsets, step, out, out_step, bias, count = args
            b = _Builder(builder, code)
            slots = [b.slots(wide) for _ in range(outputs)]
            for o in range(outputs):
                start = b.spread(b.load(bias, o * b.size, b.real))
                for slot in slots[o]:
                    builder.store(start, slot)
            steps = [b.times(o, step) for o in range(outputs)]
            with cgutils.for_range(builder, count, intp=_WORD) as loop:
                at = b.times(8, loop.index)
                place = builder.add(x, b.load(offsets, at, _WORD))
                weight = builder.add(weights, b.load(weight_offsets, at, _WORD))
                vectors = [b.load(place, i * vector_bytes(), b.vector) for i in range(wide)]
                for o in range(outputs):
                    factor = b.spread(b.load(weight, steps[o], b.real))
                    for slot, vector in zip(slots[o], vectors, strict=True):
                        b.add_product(slot, factor, vector)
            for o in range(outputs):
                row = builder.add(out, b.times(o, out_step))
                for i, slot in enumerate(slots[o]):
                    total = builder.load(slot)
                    if positive:
                        zero = ir.Constant(b.vector, None)
                        below = builder.fcmp_ordered("<", total, zero)
                        total = builder.select(below, zero, total)
                    b.store(total, row, i * vector_bytes())
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), generate

    return tile


@functools.cache
def inner(code, outputs, wide):
    """What computes a tile of inner products.

    ``out[o, k] = sum(y[o, rows_of_y[r] + j] * x[offsets[k] + rows[r] + j])`` with the sum over
    rows and the ``length`` numbers ``j`` of each.
    """

    @intrinsic
    def tile(typingctx, x, offsets, x_rows, y, y_step, y_rows, first, last, length, out):
        def generate(context, builder, signature, args):
            x, offsets, x_rows, y, y_step, y_rows, first, last, length, out = args
            b = _Builder(builder, code)
            slots = [b.slots(wide) for _ in range(outputs)]
            for slot in (slot for row in slots for slot in row):
                builder.store(ir.Constant(b.vector, None), slot)
            places = [builder.add(x, b.load(offsets, 8 * i, _WORD)) for i in range(wide)]
            count = builder.udiv(length, _WORD(lanes(code)))
            rest = builder.urem(length, _WORD(lanes(code)))

            def add_products(x_row, y_row, at, load):
                ys = [load(builder.add(y_row, b.times(o, y_step)), at) for o in range(outputs)]
                for i in range(wide):
                    vector = load(builder.add(places[i], x_row), at)
                    for o in range(outputs):
                        b.add_product(slots[o][i], ys[o], vector)

            with cgutils.for_range_slice(builder, first, last, _WORD(1), _WORD) as (row, _):
                x_row = b.load(x_rows, b.times(8, row), _WORD)
                y_row = builder.add(y, b.load(y_rows, b.times(8, row), _WORD))
                with cgutils.for_range(builder, count, intp=_WORD) as loop:
                    at = b.times(vector_bytes(), loop.index)
                    add_products(x_row, y_row, at, lambda p, at: b.load(p, at, b.vector))
                with builder.if_then(builder.icmp_unsigned("!=", rest, _WORD(0))):
                    load = functools.partial(_load_some, b, rest)
                    add_products(x_row, y_row, b.times(vector_bytes(), count), load)
            for o in range(outputs):
                for i, slot in enumerate(slots[o]):
                    b.store(_total(b, builder.load(slot)), out, (o * wide + i) * b.size)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 10), generate

    return tile


def _load_some(b, count, address, offset):
    """The first numbers of a vector, and zeros."""
    builder, size = b.builder, b.vector.count
    numbers = ir.Constant(ir.VectorType(_WORD, size), [_WORD(i) for i in range(size)])
    none = ir.Constant(numbers.type, ir.Undefined)
    one = builder.insert_element(none, count, ir.IntType(32)(0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), size), None)
    mask = builder.icmp_unsigned("<", numbers, builder.shuffle_vector(one, none, places))
    pointer = b.at(address, offset, b.vector)
    kinds = [pointer.type, ir.IntType(32), mask.type, b.vector]
    name = f"llvm.masked.load.{b.suffix}.p0"
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(b.vector, kinds), name
    )
    zeros = ir.Constant(b.vector, None)
    return builder.call(function, [pointer, ir.IntType(32)(b.size), mask, zeros])


def _total(b, vector):
    """The sum of a vector, by halves."""
    builder, count = b.builder, b.vector.count
    while count > 1:
        count //= 2
        places = [*range(count, 2 * count), *[0] * (b.vector.count - count)]
        mask = ir.Constant(ir.VectorType(ir.IntType(32), b.vector.count), places)
        vector = builder.fadd(vector, builder.shuffle_vector(vector, vector, mask))
    return builder.extract_element(vector, ir.IntType(32)(0))
