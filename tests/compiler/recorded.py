"""Programs for the tests of the passes: recorded ones, random ones, and how they are compared."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.backend import CPU
from fdbr.backends.cpu.exec.memory import buffer_assignment
from fdbr.compiler.backend import Costs
from fdbr.compiler.capture.tracing import capture
from fdbr.compiler.ir.interpreter import GuardFailure, interpret
from fdbr.compiler.ir.program import Fused, Guard, Program, Variable, kind_of
from fdbr.compiler.ir.python_numbers import apply
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.decompose import decompose, expand
from fdbr.compiler.passes.loop_fusion import fuse_loops


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    """Normally distributed numbers, the same ones for the same seed."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def treat_as_large(patch: Any) -> None:
    """Have kernels, and plans of memory, for arrays for which it does not pay."""
    patch.setattr(buffer_assignment, "_LEAST", 9)  # more than a scalar has
    patch.setattr(CPU, "costs", Costs(launch=1))
    patch.setattr(CPU, "is_small", lambda step: False)


def recorded(f: Callable[..., Any], *args: Any) -> tuple[Program, list[Any]]:
    """The program of a function, and the leaves of its arguments."""
    leaves, structure = tree.flatten(args)

    def run(given: list[Any]) -> list[Any]:
        return tree.leaves(f(*tree.unflatten(structure, given)))

    program = capture(run, f, leaves).program
    assert program is not None
    return program, leaves


def names(program: Program) -> Counter:
    """How often each primitive is applied."""
    return Counter(
        "guard" if type(step) is Guard else step.primitive.name for step in program.steps
    )


def results(program: Program, leaves: Sequence[Any]) -> Any:
    """The outputs; or the decision that was another, and what it said."""
    with np.errstate(all="ignore"):
        try:
            return interpret(program, leaves)
        except GuardFailure as miss:
            return miss.index, repr(miss.answer)


def bits(value: Any) -> Any:
    """What two values have in common if they are the same to the bit; all NaN are one."""
    if not hasattr(value, "dtype"):
        return type(value), repr(value)
    array = np.array(value)
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return type(value), array.dtype, array.shape, array.tobytes()


def assert_same(program: Program, other: Program, leaves: Sequence[Any]) -> None:
    """Two programs give the same to the bit."""
    ours, theirs = results(program, leaves), results(other, leaves)
    assert list(map(bits, ours)) == list(map(bits, theirs)), f"{program}\n{other}"


def assert_close(
    program: Program, other: Program, leaves: Sequence[Any], tolerance: float = 1e-9
) -> None:
    """Two programs give the same kinds, and nearly the same numbers."""
    ours, theirs = results(program, leaves), results(other, leaves)
    if type(ours) is tuple:
        assert ours == theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        assert (type(a), np.shape(a)) == (type(b), np.shape(b)), f"{program}\n{other}"
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * _size(a), strict=True)


def _size(value: Any) -> float:
    finite = np.abs(np.asarray(value, dtype=complex))
    finite = finite[np.isfinite(finite)]
    return float(finite.max(initial=1.0))


def check(program: Program) -> None:
    """A program is well formed: each variable is made once, and before it is read."""
    known = set(program.inputs)
    for step in program.steps:
        assert known.issuperset(step.reads), f"{step} reads what is not there yet\n{program}"
        assert known.isdisjoint(step.outs), f"{step} makes what is there already\n{program}"
        known.update(step.outs)
    assert known.issuperset(v for v in program.outputs if type(v) is Variable)


def kernels_around(
    transform: Callable[[Program], Program], f: Callable[..., Any], *args: Any
) -> list[list[Fused]]:
    """The kernels of a function before and after a pass, which changes no result."""
    program, leaves = recorded(f, *args)
    before = fuse_loops(optimise(decompose(expand(program))))
    after = transform(before)
    check(after)
    assert_same(before, after, leaves)
    return [[step for step in p.steps if isinstance(step, Fused)] for p in (before, after)]


def assert_kinds(program: Program, leaves: Sequence[Any]) -> None:
    """Each variable has the kind that the program says."""
    values = dict(zip(program.inputs, leaves, strict=True))
    with np.errstate(all="ignore"):
        for step in program.steps:
            if type(step) is Guard:
                continue
            operands = [values[x] if type(x) is Variable else x for x in step.operands]
            out = apply(step.primitive, tuple(operands), dict(step.params))
            for variable, value in zip(step.outs, out if step.several else (out,), strict=True):
                values[variable] = value
                assert kind_of(value) == variable.kind, f"{step}\n{program}"


# --- random programs ----------------------------------------------------------------

_VALUES = (-2.0, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0)
_SIDES = 2, 3

_UNARY = [
    ops.sin, ops.tanh, ops.square, ops.relu, ops.sigmoid, ops.negative, ops.abs, ops.cos,
    lambda x: x ** 3, lambda x: x ** 2.0, lambda x: ops.negative(-x), lambda x: +x, ops.real,
    lambda x: ops.astype(x, np.float64), lambda x: ops.astype(x, np.float32),
    lambda x: ops.zeros_like(x) + x, lambda x: ops.where(x > 0, x, 0.1 * x), lambda x: x * x,
    lambda x: ops.concat([x, x]) if x.ndim else x, lambda x: ops.stack([x, -x]),
    lambda x: ops.pad(x, 1) if x.ndim else x, lambda x: ops.flip(ops.flip(x)),
]  # fmt: skip
_SHAPING = [
    lambda x: x.T, lambda x: ops.reshape(x, (-1,)), lambda x: ops.reshape(x, (*x.shape, 1)),
    lambda x: ops.matrix_transpose(x) if x.ndim > 1 else x,
    lambda x: ops.broadcast_to(x, (2, *x.shape)), lambda x: ops.expand_dims(x, axis=0),
]  # fmt: skip
_BINARY = [
    ops.add, ops.subtract, ops.multiply, ops.maximum, lambda x, y: x + (-y), lambda x, y: x - (-y),
    lambda x, y: -x * -y, lambda x, y: -(x - y), lambda x, y: ops.where(x > y, x, y),
    lambda x, y: x / (1 + y * y),
]  # fmt: skip
_NUMBERS = [
    ops.add, ops.subtract, ops.multiply, lambda x, c: c - x, lambda x, c: x / (c or 1.0),
    lambda x, c: -(x * c), lambda x, c: x * np.full(x.shape, c, x.dtype),
    lambda x, c: x + np.full(x.shape, c, x.dtype), lambda x, c: ops.full_like(x, c) * x,
]  # fmt: skip
_REDUCTIONS = [ops.sum, ops.mean, ops.max]
_KEYS = [
    0, -1, slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1),
    (..., 0), (slice(None), None), None, (0, ...), slice(0, 1), (..., slice(1, 3)),
]  # fmt: skip


def _together(x: Any, y: Any) -> bool:
    try:
        return len(np.broadcast_shapes(x.shape, y.shape)) < 4
    except ValueError:
        return False


@st.composite
def steps(draw: Any, decisions: bool) -> Callable[[list[Any]], None]:
    """One step of a function: it appends a value to those that there are."""
    kinds = "unary shaping binary number reduction slice matmul again".split()
    kind = draw(st.sampled_from([*kinds, "decision"] if decisions else kinds))
    first, second = draw(st.integers(0, 30)), draw(st.integers(0, 30))
    choice = draw(st.integers(0, 30))
    number = draw(st.sampled_from([*_VALUES, 0, 1, -1, 2]))
    return lambda values: values.append(_step(values, kind, first, second, choice, number))


def _step(values: list[Any], kind: str, first: int, second: int, choice: int, number: Any) -> Any:
    x, y = values[-1 - first % len(values)], values[second % len(values)]
    pick = lambda table: table[choice % len(table)]
    if kind == "decision":
        return x + 1 if ops.sum(x) > number else x * 2
    if kind == "number":
        return pick(_NUMBERS)(x, number)
    if kind == "reduction" and x.ndim:
        axis = (None, 0, -1)[second % 3]
        return pick(_REDUCTIONS)(x, axis=axis, keepdims=bool(first % 2))
    if kind == "slice":
        return _sliced(x, pick(_KEYS))
    if kind == "shaping" and x.size < 40 and x.ndim < 4:
        return pick(_SHAPING)(x)
    if kind == "binary" and _together(x, y):
        return pick(_BINARY)(x, y)
    if kind == "matmul" and x.ndim == y.ndim == 2 and x.shape[1] == y.shape[0]:
        return x @ y
    if kind == "again":
        return ops.sin(x) * ops.sin(x)
    return _UNARY[choice % len(_UNARY)](x) if x.size < 80 else ops.tanh(x)


def _sliced(x: Any, key: Any) -> Any:
    parts = key if type(key) is tuple else (key,)
    used = sum(part is not None and part is not ... for part in parts)
    if used > x.ndim or x.ndim > 3 or 0 in x.shape:
        return ops.tanh(x)
    try:
        out = x[key]
    except IndexError:
        return ops.tanh(x)
    return out if out.size else ops.tanh(x)


@st.composite
def functions(draw: Any, decisions: bool = True) -> tuple[Callable[..., Any], list[Any]]:
    """A function of random operations, perhaps its gradient, and arguments for it."""
    elements = st.sampled_from(_VALUES)
    shapes = st.lists(st.sampled_from(_SIDES), min_size=1, max_size=2).map(tuple)
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    args = []
    for shape in draw(st.lists(shapes, min_size=1, max_size=3)):
        count = int(np.prod(shape))
        flat = draw(st.lists(elements, min_size=count, max_size=count))
        args.append(np.array(flat, dtype=dtype).reshape(shape))
    body = draw(st.lists(steps(decisions), min_size=2, max_size=12))
    outputs = draw(st.integers(1, 4))

    def f(*inputs: Any) -> Any:
        values = list(inputs)
        for step in body:
            step(values)
        return tuple(values[-outputs:])

    def loss(*inputs: Any) -> Any:
        return sum(ops.sum(ops.sin(value)) for value in f(*inputs))

    everything = tuple(range(len(args)))
    kind = draw(st.sampled_from(["value", "gradient", "gradient"]))
    return (f if kind == "value" else fdbr.grad(loss, argnums=everything)), args


def bitwise_law(transform: Callable[[Program], Program], f: Any, args: Any) -> Program:
    """What holds of each pass that leaves all numbers as they are; it gives the new program."""
    program, leaves = recorded(f, *args)
    after = _sound(transform, program)
    assert_kinds(after, leaves)
    assert_same(program, after, leaves)
    others = [
        np.where(leaf < 0.5, np.array([np.nan, np.inf, -0.0])[i % 3], leaf).astype(leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    assert_same(program, after, others)
    return after


def near_law(transform: Callable[[Program], Program], f: Any, args: Any) -> Program:
    """What holds of each pass that may round otherwise; it gives the new program."""
    program, leaves = recorded(f, *args)
    after = _sound(transform, program)
    assert_kinds(after, leaves)
    tolerance = 1e-4 if any(leaf.dtype == np.float32 for leaf in leaves) else 1e-9
    assert_close(program, after, leaves, tolerance)
    return after


def most_steps(program: Program) -> int:
    """How many steps may be left of a program: powers become up to four products."""
    found = names(program)
    return sum(found.values()) + 3 * (found["integer_power"] + found["power"])


def _sound(transform: Callable[[Program], Program], program: Program) -> Program:
    after = transform(program)
    check(after)
    assert after.inputs == program.inputs
    assert [guard.index for guard in after.guards] == sorted(g.index for g in after.guards)
    # Where products are joined, their results are slices.
    allowed = 0 if names(after)["concat"] <= names(program)["concat"] else names(after)["slice"]
    assert len(after.steps) <= most_steps(program) + allowed
    assert str(transform(after)) == str(after)
    return after
