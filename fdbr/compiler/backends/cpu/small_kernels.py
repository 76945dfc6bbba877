"""Kernels for small arrays: step after step, each a loop of constant length.

NumPy spends its time on calls where arrays are small; here a step on ten numbers is ten
operations.  What only looks at an array in another way (slices, reshapes, permutations,
broadcasts) is no operation at all.
"""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from fdbr.compiler.backends.cpu.element_code import CODES, cost, element, is_elementwise
from fdbr.compiler.backends.cpu.fused_kernels import Output, Written, literal, store, stored
from fdbr.compiler.ir.program import Instruction, Kind, Small, Variable, kind_of
from fdbr.compiler.passes.rules.views import view_of

__all__ = ["is_small", "looks_up", "write_small"]

_MOST = 1024  # elements of an array up to which it counts as small
_LONGEST = 256  # elements up to which a sum one after the other is as exact as NumPy's
_REDUCTIONS = {"sum": "plus", "mean": "plus", "max": "larger", "min": "smaller"}
_COPIES = frozenset({"unslice", "concat", "stack"})
_LOOKS = frozenset({"slice", "reshape", "permute", "matrix_transpose", "broadcast_to"})
_LOOKUPS = frozenset({"gather", "subtract_at_labels"})


def is_small(step: Any) -> bool:
    """Whether a kernel for small arrays can do a step."""
    if type(step) is not Instruction or len(step.outs) != 1 or step.several:
        return False
    kinds = [kind_of(operand) for operand in (*step.operands, *step.outs)]
    if any(kind.size > _MOST or not kind.size or kind.dtype not in CODES for kind in kinds):
        return False
    if kinds[-1].is_number or not all(kind.is_number or _is_numpy(kind) for kind in kinds):
        return False
    name = step.primitive.name
    if name in _REDUCTIONS:
        if kinds[0].size > _LONGEST * kinds[-1].size:
            return False
        return kinds[0].dtype == kinds[-1].dtype and kinds[0].dtype.kind == "f"
    if name in _LOOKUPS:
        return _is_lookup(step, kinds)
    if name in _COPIES or name in _LOOKS:
        same = all(kind.dtype == kinds[-1].dtype for kind in kinds[:-1])
        return same and _key_is_plain(step)
    return is_elementwise(step)


def _is_lookup(step: Instruction, kinds: Sequence[Kind]) -> bool:
    """Whether a step takes one element, or changes one, for each place of its index arrays."""
    first, *rest, out = kinds
    if step.primitive.name == "gather":
        places, key = rest, step.params["key"]
        plain = type(key) is tuple and len(key) == len(first.shape) and all(map(_is_slot, key))
        if not plain or any(place.shape != out.shape for place in places):
            return False
    else:
        values, label = rest
        places = [label]
        if len(first.shape) != 2 or not values.shape == label.shape == first.shape[:1]:
            return False
        if values.dtype != out.dtype:
            return False
    return first.dtype == out.dtype and all(place.dtype.kind == "i" for place in places)


def _is_slot(part: Any) -> bool:
    return part is not None and part is not Ellipsis and type(part) not in (int, slice)


def looks_up(small: Small) -> bool:
    """Whether a kernel looks elements up by indices, and tells in its last output if any is wrong.

    The function itself is to be run then, for it raises the error.
    """
    return any(step.primitive.name in _LOOKUPS for step in small.steps)


def _is_numpy(kind: Any) -> bool:
    return kind.type is np.ndarray or issubclass(kind.type, np.generic)


def _key_is_plain(step: Instruction) -> bool:
    if step.primitive.name not in ("slice", "unslice"):
        return True
    shape = step.params.get("shape", kind_of(step.operands[0]).shape)
    return view_of(shape, step.params["key"]) is not None


@attrs.frozen
class _Look:
    """Elements somewhere in memory: those at ``start + sum(stride * index)``."""

    memory: str
    start: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    code: str

    def at(self, indices: list[str], rank: int) -> str:
        """The element for an index of an array of some rank to which this one broadcasts."""
        terms = []
        lead = rank - len(self.shape)
        for axis, (stride, n) in enumerate(zip(self.strides, self.shape, strict=True)):
            if stride and n != 1:
                index = indices[lead + axis]
                terms.append(index if stride == 1 else f"{index} * {stride}")
        terms += [str(self.start)] if self.start or not terms else []
        text = f"{self.memory}[{' + '.join(terms)}]"
        return f"({text} != 0)" if self.code == "b1" else text

    def is_ordered(self) -> bool:
        """Whether its elements lie one after the other."""
        return all(
            n == 1 or stride == own
            for n, stride, own in zip(self.shape, self.strides, _strides(self.shape), strict=True)
        )


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


class _Writer:
    def __init__(self, small: Small) -> None:
        self.small = small
        self.lines: list[str] = []
        self.inputs: dict[Any, tuple[str, Any]] = {}
        self.outputs: list[Output] = []
        self.looks: dict[Any, _Look] = {}
        self.scratch: dict[str, int] = {}

    def look(self, operand: Any) -> _Look:
        """Where an operand's elements are."""
        key = operand if type(operand) is Variable else id(operand)
        if key not in self.looks:
            kind = kind_of(operand)
            name = f"a{len(self.inputs)}"
            self.inputs[key] = (name, operand)
            shape = kind.shape
            self.looks[key] = _Look(name, 0, _strides(shape), shape, CODES[kind.dtype])
        return self.looks[key]

    def target(self, out: Variable) -> _Look:
        """New memory for a result: what the kernel gives out, or scratch."""
        code = CODES[out.kind.dtype]
        shape = out.kind.shape
        if out in self.small.outs:
            self.outputs.append(Output(out, shape, out.kind.dtype, False, 1))
            name, start = f"o{len(self.outputs) - 1}", 0
        else:
            name, start = f"s_{code}", self.scratch.get(code, 0)
            self.scratch[code] = start + out.kind.size
        self.looks[out] = _Look(name, start, _strides(shape), shape, code)
        return self.looks[out]

    def loop(self, shape: tuple[int, ...], body: Any) -> None:
        """Nested loops over a shape around the statements that ``body(indices)`` gives."""
        indices, indent = [], ""
        for axis, n in enumerate(shape):
            if n == 1:
                indices.append("0")
                continue
            self.lines.append(f"{indent}for i{axis} in range({n}):")
            indices.append(f"i{axis}")
            indent += "    "
        self.lines += [indent + line for line in body(indices)]


def write_small(small: Small) -> Written:
    """The kernel for steps on small arrays; it has one row."""
    writer = _Writer(small)
    for step in small.steps:
        _write_step(writer, step)
    for code in writer.scratch:
        dtype = next(d for d, name in CODES.items() if name == code)
        writer.outputs.append(Output(None, (writer.scratch[code],), dtype, False, 1))
    scratch = [f"s_{code}" for code in writer.scratch]
    names = [name for name, _ in writer.inputs.values()]
    count = len(writer.outputs) - len(scratch)
    names += [f"o{i}" for i in range(count)] + scratch
    dtypes = [kind_of(operand).dtype for _, operand in writer.inputs.values()]
    dtypes += [output.dtype for output in writer.outputs]
    heads = [
        f"{name} = data(table, {i}, {stored(dtype)}(0))"
        for i, (name, dtype) in enumerate(zip(names, dtypes, strict=True))
    ]
    if looks_up(small):
        heads.append(f"wrong = data(table, {len(names)}, u1(0))")
        heads.append("bad = False")
        writer.lines.append("wrong[0] = u1(bad)")
        writer.outputs.append(Output(None, (1,), np.dtype(bool), False, 1))
    text = "\n".join("    " + line for line in [*heads, *writer.lines])
    inputs = tuple(operand for _, operand in writer.inputs.values())
    source = f"def kernel(table, start, stop, thread):\n{text}\n"
    weight = sum(
        cost(step) * max(kind_of(o).size for o in (*step.operands, *step.outs))
        for step in small.steps
    )
    return Written(source, inputs, tuple(writer.outputs), 1, weight)


def _write_step(writer: _Writer, step: Instruction) -> None:
    name = step.primitive.name
    out = step.outs[0]
    if name in _LOOKS:
        found = _looked(writer.look(step.operands[0]), step)
        if found is not None and out not in writer.small.outs:
            writer.looks[out] = found
            return
        source = found or writer.look(step.operands[0])
        _copy(writer, source, writer.target(out), found is None)
    elif name in _REDUCTIONS:
        _reduce(writer, step)
    elif name == "unslice":
        source = writer.look(step.operands[0])
        target = writer.target(out)
        writer.loop(
            target.shape, lambda at: [f"{target.at(at, len(at))} = {stored(out.kind.dtype)}(0)"]
        )
        _copy(writer, source, _sliced(target, step.params["key"]), False)
    elif name in _COPIES:
        _join(writer, step)
    elif name in _LOOKUPS:
        _look_up(writer, step)
    else:
        _elementwise(writer, step)


def _elementwise(writer: _Writer, step: Instruction) -> None:
    out = step.outs[0]
    looks: list[Any] = []
    for operand in step.operands:
        constant = type(operand) is not Variable and kind_of(operand).size == 1
        looks.append(None if constant else writer.look(operand))
    target, *looks = _merged(writer.target(out), looks)

    def body(at: list[str]) -> list[str]:
        texts, codes = [], []
        for operand, look in zip(step.operands, looks, strict=True):
            code = CODES[kind_of(operand).dtype]
            texts.append(literal(operand, code) if look is None else look.at(at, len(at)))
            codes.append(code)
        place = _place(target, at)
        return [store(place, element(step, texts, codes), out.kind.dtype)]

    writer.loop(target.shape, body)


def _merged(target: _Look, looks: Sequence[_Look | None]) -> list[Any]:
    """The same elements with fewer axes: two are one where all step through both as through one.

    A long loop takes several elements at once, a short one inside of another does not.
    """
    rank = len(target.shape)
    spread = [target, *(None if look is None else _spread(look, rank) for look in looks)]
    shape = list(target.shape)
    for axis in range(rank - 2, -1, -1):
        count = shape[axis + 1]
        if all(x is None or x.strides[axis] == x.strides[axis + 1] * count for x in spread):
            shape[axis : axis + 2] = [shape[axis] * count]
            for i, x in enumerate(spread):
                if x is not None:
                    strides = (*x.strides[:axis], *x.strides[axis + 1 :])
                    spread[i] = attrs.evolve(x, strides=strides)
    # An axis of one element is no axis to `at`, and has no step.
    return [x and attrs.evolve(x, shape=tuple(shape)) for x in spread]


def _spread(look: _Look, rank: int) -> _Look:
    """Elements with as many axes as those that they broadcast to, whose steps are 0 then."""
    strides = [0 if n == 1 else s for n, s in zip(look.shape, look.strides, strict=True)]
    return attrs.evolve(look, strides=(0,) * (rank - len(strides)) + tuple(strides))


def _look_up(writer: _Writer, step: Instruction) -> None:
    source, *rest = map(writer.look, step.operands)
    target = writer.target(step.outs[0])
    if step.primitive.name == "gather":

        def taken(at: list[str]) -> list[str]:
            lines, places = _checked(rest, source.shape, at)
            return [*lines, _stored_from(source, places, _place(target, at))]

        writer.loop(target.shape, taken)
        return
    values, labels = rest
    _copy(writer, source, target, False)

    def changed(at: list[str]) -> list[str]:
        lines, places = _checked([labels], source.shape[1:], at)
        where = _place(target, [*at, *places])
        return [*lines, f"{where} = {where} - {values.at(at, 1)}"]

    writer.loop(labels.shape, changed)


def _checked(
    looks: list[_Look], shape: Sequence[int], at: list[str]
) -> tuple[list[str], list[str]]:
    """The statements that read indices into a shape, and see whether there are such places.

    And the names of the indices, which are those of a place anyhow.
    """
    lines, names = [], []
    for axis, (look, n) in enumerate(zip(looks, shape, strict=True)):
        name = f"k{axis}"
        lines += [
            f"{name} = i8({look.at(at, len(at))})",
            f"{name} = select({name} < 0, {name} + {n}, {name})",
            f"bad |= ({name} < 0) | ({name} >= {n})",
            f"{name} = min(max({name}, 0), {n - 1})",
        ]
        names.append(name)
    return lines, names


def _place(target: _Look, at: list[str]) -> str:
    """Where an element is written to."""
    return attrs.evolve(target, code="").at(at, len(at))


def _copy(writer: _Writer, source: _Look, target: _Look, flat: bool) -> None:
    """Copy elements; ``flat`` if the shapes differ and only the order counts."""
    if flat:  # walk over the source, and count
        order = _strides(source.shape)

        def body(at: list[str]) -> list[str]:
            terms = [f"{i} * {n}" for i, n in zip(at, order, strict=True) if i != "0"]
            where = " + ".join([*terms, str(target.start)])
            return [_stored_from(source, at, f"{target.memory}[{where}]")]

        writer.loop(source.shape, body)
    else:
        writer.loop(target.shape, lambda at: [_stored_from(source, at, _place(target, at))])


def _stored_from(source: _Look, at: list[str], where: str) -> str:
    text = source.at(at, len(at))
    return f"{where} = u1({text})" if source.code == "b1" else f"{where} = {text}"


def _looked(source: _Look, step: Instruction) -> _Look | None:
    """The same memory looked at in another way; `None` if that cannot be."""
    name, shape = step.primitive.name, step.outs[0].kind.shape
    if name == "slice":
        return _sliced(source, step.params["key"])
    if name == "broadcast_to":
        lead = len(shape) - len(source.shape)
        strides = [0] * lead + [
            0 if n == 1 else stride for n, stride in zip(source.shape, source.strides, strict=True)
        ]
        return attrs.evolve(source, strides=tuple(strides), shape=shape)
    if name in ("permute", "matrix_transpose"):
        rank = len(shape)
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        axes = step.params["axes"] if name == "permute" else swapped
        return attrs.evolve(source, strides=tuple(source.strides[a] for a in axes), shape=shape)
    if source.is_ordered():
        return attrs.evolve(source, strides=_strides(shape), shape=shape)
    return None


def _sliced(source: _Look, key: Any) -> _Look:
    view = view_of(source.shape, key)
    assert view is not None
    start = source.start
    for place, stride in zip(view.axes, source.strides, strict=True):
        first = place if type(place) is int else (place[0] if place else 0)  # type: ignore[index]
        start += first * stride
    strides, shape = [], []
    for axis in view.layout:
        if axis is None:
            strides.append(0)
            shape.append(1)
            continue
        places: Any = view.axes[axis]
        strides.append(source.strides[axis] * places.step)
        shape.append(len(places))
    return attrs.evolve(source, start=start, strides=tuple(strides), shape=tuple(shape))


def _reduce(writer: _Writer, step: Instruction) -> None:
    name, out = step.primitive.name, step.outs[0]
    source = writer.look(step.operands[0])
    code = source.code
    target = writer.target(out)
    axes = frozenset(step.params["axes"])
    count = math.prod(source.shape[axis] for axis in axes)
    kept = [axis for axis in range(len(source.shape)) if axis not in axes]
    strides = dict(zip(kept, _strides(tuple(source.shape[a] for a in kept)), strict=True))
    outer = tuple(source.shape[axis] if axis in kept else 1 for axis in range(len(source.shape)))
    inner = tuple(source.shape[axis] if axis in axes else 1 for axis in range(len(source.shape)))
    begin = {"max": f"{code}(-inf)", "min": f"{code}(inf)"}.get(name, f"{code}(0)")

    def body(at: list[str]) -> list[str]:
        lines = [f"t = {begin}", "nan_in = False"]
        indices, indent = list(at), ""
        for axis, n in enumerate(inner):
            if n != 1:
                lines.append(f"{indent}for j{axis} in range({n}):")
                indices[axis] = f"j{axis}"
                indent += "    "
        text = source.at(indices, len(indices))
        lines.append(f"{indent}t = {_REDUCTIONS[name]}(t, {text})")
        if name in ("max", "min"):
            lines.append(f"{indent}nan_in |= {text} != {text}")
        terms = [f"{at[axis]} * {strides[axis]}" for axis in kept if at[axis] != "0"]
        where = f"{target.memory}[{' + '.join([*terms, str(target.start)])}]"
        total = f"t / {code}({count})" if name == "mean" else "t"
        if name in ("max", "min"):
            total = f"select(nan_in, {code}(nan), t)"
        return [*lines, f"{where} = {total}"]

    writer.loop(outer, body)


def _join(writer: _Writer, step: Instruction) -> None:
    looks = [writer.look(operand) for operand in step.operands]
    target = writer.target(step.outs[0])
    axis = step.params["axis"] % len(target.shape)
    start = 0
    for look in looks:
        if step.primitive.name == "stack":
            key: Any = (slice(None),) * axis + (start,)
            start += 1
        else:
            stop = start + look.shape[axis]
            key = (slice(None),) * axis + (slice(start, stop),)
            start = stop
        _copy(writer, look, _sliced(target, key), False)
