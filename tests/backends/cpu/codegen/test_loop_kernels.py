"""Loops of steps on small arrays, as kernels."""

from typing import Any

import numpy as np
from compiler.recorded import recorded
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.backends.cpu.codegen.loop_kernels import write_loop
from fdbr.backends.cpu.exec.programs import generate
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.ir.loops import loops
from fdbr.compiler.passes.roll_loops import roll_loops

LEAST = 6

EXPRESSIONS = [
    lambda a, b, x, i: ops.tanh(a) + 0.5 * b,
    lambda a, b, x, i: ops.tanh(a * x[i]),
    lambda a, b, x, i: 0.5 * a + x[-1 - i] * (i + 1.0),
    lambda a, b, x, i: b,
    lambda a, b, x, i: a[::-1] * 0.5,
    lambda a, b, x, i: ops.where(a > b, a, x[i]),
    lambda a, b, x, i: ops.tanh(ops.sum(a * b)) * x[i],
    lambda a, b, x, i: ops.concat([b[1:], a[:1]]),
    lambda a, b, x, i: 0.5 * a + 0.25 * ops.max(b),
]

statement = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from(EXPRESSIONS))


@st.composite
def functions(draw: Any) -> tuple[Any, list[Any]]:
    """A function whose loop has nothing but steps on small arrays, and arguments for it."""
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    body = draw(st.lists(statement, min_size=1, max_size=3))
    count, length = draw(st.integers(8, 20)), draw(st.integers(1, 4))
    collected = draw(st.booleans())
    generator = np.random.default_rng(0)
    args = [generator.normal(size=(n, length)).astype(dtype) for n in (3, count)]

    def f(starts: Any, xs: Any) -> Any:
        values, out = list(starts), []
        for i in range(count):
            for target, other, expression in body:
                values[target] = expression(values[target], values[other], xs, i)
            values = values[1:] + values[:1]
            out.append(values[0])
        return values, ops.stack(out) if collected else 0

    return f, args


@given(functions(), st.booleans())
@settings(max_examples=10)
def test_a_loop_as_a_kernel_gives_what_its_iterations_give(case: Any, backward: bool) -> None:
    f, args = case
    if backward:
        values = f
        f = fdbr.grad(lambda *args: sum(ops.sum(ops.sin(v)) for v in values(*args)[0]), (0, 1))
    program, leaves = recorded(f, *args)
    rolled = roll_loops(program, LEAST)
    tolerance = 1e-4 if args[0].dtype == np.float32 else 1e-11
    for ours, theirs in zip(generate(rolled)(*leaves), interpret(rolled, leaves), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, strict=True)


def test_loops_of_other_lengths_are_the_same_kernel() -> None:
    def f(u: Any, xs: Any) -> Any:
        for i in range(len(xs)):
            u = ops.tanh(u) * xs[-1 - i] + i * 0.5
        return u

    sources = set()
    for length in (20, 40):
        program, _ = recorded(f, np.ones(3), np.ones((length, 3)))
        ((step, _),) = loops(roll_loops(program, LEAST))
        sources.add(write_loop(step).source)
    assert len(sources) == 1


def test_numbers_that_no_array_holds_leave_a_loop_to_python() -> None:
    def f(u: Any) -> Any:
        for i in range(20):
            u = u + 2.0**i * (1 << (60 + i))
        return u

    program, leaves = recorded(f, np.ones(3))
    rolled = roll_loops(program, LEAST)
    np.testing.assert_array_equal(generate(rolled)(*leaves)[0], f(*leaves))
