"""Loops of Python, found in what they were unrolled to: the same numbers, by fewer steps."""

import sys
from typing import Any

import numpy as np
import pytest
from compiler.comparing import assert_same as assert_same_values
from compiler.recorded import assert_same, bits, names, recorded, results
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.compiler.ir.check import check
from fdbr.compiler.ir.interpreter import GuardFailure, interpret
from fdbr.compiler.ir.loops import LOOP, loops
from fdbr.compiler.ir.program import Program
from fdbr.compiler.passes.roll_loops import roll_loops

LEAST = 6
TABLE = np.sin(np.arange(200.0))


def rolled(f: Any, *args: Any) -> tuple[Program, Program, list[Any]]:
    """A function's program before and after the pass, which is checked to give the same bits."""
    program, leaves = recorded(f, *args)
    after = check(roll_loops(program, LEAST), program)
    assert_same(program, after, leaves)
    return program, after, leaves


def all_steps(program: Program) -> int:
    """How many steps a program has, those of the bodies included."""
    return len(program.steps) + sum(all_steps(loop.body) for _, loop in loops(program))


# --- random loops -------------------------------------------------------------------

EXPRESSIONS = [
    lambda s, e: ops.sin(s.a),
    lambda s, e: s.a * s.b,
    lambda s, e: s.a + 0.25 * s.b,
    lambda s, e: ops.tanh(e.w @ s.a),
    lambda s, e: s.a * e.xs[s.i],
    lambda s, e: s.a - e.xs[-1 - s.i] * 0.5,
    lambda s, e: s.a + e.xs[s.i : s.i + 2].sum(axis=0),
    lambda s, e: s.a * TABLE[s.i],
    lambda s, e: s.a + (s.i + 1.0),
    lambda s, e: ops.at(s.a)[1:].add(0.1 * (s.b[:-1] - s.a[1:])),
    lambda s, e: ops.where(s.a > s.b, s.a, 0.5 * s.b),
    lambda s, e: s.a + ops.concat([s.b[1:], s.b[:1]]),
    lambda s, e: s.a / (1 + ops.sum(s.b * s.b)),
    lambda s, e: s.a + e.cube[:, s.i, 1] * e.k,
    lambda s, e: s.a if ops.sum(s.a) > -1e300 else s.b,
    lambda s, e: s.a * (e.k if s.i % 3 else 0.5),
    lambda s, e: _inner(s.a, s.b),
]


def _inner(a: Any, b: Any) -> Any:
    for _ in range(5):
        a = ops.sin(a) + 0.1 * b
    return a


class State:
    """What a statement sees: two of the values that are carried, and the turn."""

    def __init__(self, values: list[Any], first: int, second: int, i: int) -> None:
        self.a, self.b = values[first % len(values)], values[second % len(values)]
        self.i = i


class Environment:
    """What is around the loop."""

    def __init__(self, w: Any, xs: Any, cube: Any, k: Any) -> None:
        self.w, self.xs, self.cube, self.k = w, xs, cube, k


statement = st.tuples(
    st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.sampled_from(EXPRESSIONS)
)


@st.composite
def functions(draw: Any, most: int = 60) -> tuple[Any, list[Any], int]:
    """A function with a loop of random statements, arguments for it, and the number of turns."""
    carried = draw(st.integers(1, 3))
    body = draw(st.lists(statement, min_size=1, max_size=4))
    count = draw(st.integers(0, most))
    swapped, collected, last = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    generator = np.random.default_rng(draw(st.integers(0, 3)))
    args = [
        generator.normal(size=(carried, 3)),
        generator.normal(size=(3, 3)),
        generator.normal(size=(count + 2, 3)),
        generator.normal(size=(3, count + 1, 2)),
        np.float64(0.7),
    ]

    def f(starts: Any, *around: Any) -> Any:
        values, out = [starts[i] for i in range(carried)], []
        environment = Environment(*around)
        for i in range(count):
            for target, first, second, expression in body:
                new = expression(State(values, first, second, i), environment)
                values[target % carried] = new
            if swapped:
                values = values[1:] + values[:1]
            if collected:
                out.append(values[0])
            if last and i == count - 1:
                values[0] = ops.cos(values[0])
        total = sum(ops.sum(ops.sin(value)) for value in values)
        return total + ops.sum(ops.stack(out) ** 2) if out else total

    return f, args, count


@given(functions(), st.sampled_from(["value", "gradient"]))
@settings(max_examples=60)
def test_a_rolled_program_gives_the_same_bits(case: Any, kind: str) -> None:
    f, args, _ = case
    rolled(f if kind == "value" else fdbr.grad(f, argnums=(0, 1, 2, 3, 4)), *args)


@given(functions(most=12))
@settings(max_examples=15)
def test_loops_within_second_derivatives_give_the_same_bits(case: Any) -> None:
    f, args, _ = case
    slope = lambda *args: ops.sum(fdbr.grad(f)(*args) * np.arange(3.0))
    rolled(fdbr.grad(slope), *args)


@given(functions(most=25))
@settings(max_examples=25)
def test_a_jitted_function_with_loops_gives_what_the_function_gives(case: Any) -> None:
    f, args, _ = case
    f = fdbr.value_and_grad(f, argnums=(0, 1, 2, 3, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[roll_loops.__module__], "LEAST", LEAST)
        jitted = fdbr.jit(f)
        jitted(*args)
        for factor in (1.0, 0.5):
            given = [factor * arg for arg in args]
            for ours, theirs in zip(
                tree.leaves(jitted(*given)), tree.leaves(f(*given)), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8, strict=True)


# --- what becomes one loop ----------------------------------------------------------


def recurrent(w: Any, xs: Any) -> Any:
    h, out = np.zeros(3), []
    for i in range(len(xs)):
        h = ops.tanh(w @ h + xs[i] * (i + 1.0))
        out.append(h)
    return ops.sum(ops.stack(out) ** 2)


def stencil(u: Any, speed: Any, iterations: Any) -> Any:
    for _ in range(len(iterations)):
        u = ops.at(u)[1:-1].add(speed * (u[2:] - 2 * u[1:-1] + u[:-2]))
    return ops.sum(u**2)


def two_back(a: Any, b: Any, iterations: Any) -> Any:
    for _ in range(len(iterations)):
        a, b = b, ops.sin(a) + 0.1 * b
    return a * b


def nested(u: Any, iterations: Any) -> Any:
    for i in range(len(iterations)):
        for _ in range(10):
            u = ops.sin(u) * 0.9 + 0.1 * u
        u = u * iterations[i]
    return ops.sum(u)


def windows(u: Any, xs: Any) -> Any:
    for i in range(len(xs) - 3):
        u = ops.sin(u) + ops.sum(xs[i : i + 4] * u)
    return ops.sum(u)


def parts_along_others(u: Any, xs: Any) -> Any:
    for i in range(xs.shape[1]):
        u = ops.sin(u) * xs[:, i, i]
    return ops.sum(u)


CASES = [
    (recurrent, lambda n: (np.eye(3), np.ones((n, 3)))),
    (stencil, lambda n: (np.arange(8.0), np.float64(0.1), np.ones(n))),
    (two_back, lambda n: (np.float64(0.3), np.float64(0.1), np.ones(n))),
    (nested, lambda n: (np.arange(3.0), np.ones(n))),
    (windows, lambda n: (np.arange(3.0), np.ones((n, 3)))),
    (parts_along_others, lambda n: (np.arange(3.0), np.ones((3, n, n)))),
]


@pytest.mark.parametrize(("f", "arguments"), CASES)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_number_of_steps_does_not_depend_on_the_trip_count(
    f: Any, arguments: Any, order: int
) -> None:
    g = f
    for _ in range(order):
        g = (lambda inner: fdbr.grad(lambda *args: ops.sum(inner(*args))))(g)
    few, many = (rolled(g, *arguments(n)) for n in (12, 60))
    assert all_steps(few[1]) == all_steps(many[1])
    assert all_steps(many[1]) < len(many[0].steps) / 2


def test_a_loop_within_a_loop_is_a_loop_in_its_body() -> None:
    _, after, _ = rolled(nested, np.arange(3.0), np.ones(20))
    ((_, outer),) = loops(after)
    ((_, inner),) = loops(outer.body)
    assert (outer.length, inner.length) == (19, 9) or outer.length >= 18


def test_what_is_the_same_in_all_iterations_is_computed_before_the_loop() -> None:
    def f(w: Any, u: Any) -> Any:
        for _ in range(20):
            u = ops.tanh(ops.exp(w) @ u)
        return u

    _, after, _ = rolled(f, np.eye(3), np.ones(3))
    assert names(after)["exp"] == 1


def test_what_is_done_with_each_of_many_arrays_is_no_loop() -> None:
    def f(params: Any, derivatives: Any, means: Any) -> Any:
        means = [0.9 * m + 0.1 * g for m, g in zip(means, derivatives, strict=True)]
        return [p - 0.1 * m * ops.tanh(m * m + 1) for p, m in zip(params, means, strict=True)]

    many = [[np.ones(4) for _ in range(60)] for _ in range(3)]
    program, after, _ = rolled(f, *many)
    assert names(after)["loop"] == 0
    assert len(after.steps) == len(program.steps)


def test_few_steps_stay_as_they_are() -> None:
    def f(u: Any) -> Any:
        for _ in range(10):
            u = ops.sin(u) + u
        return u

    program, _ = recorded(f, np.ones(3))
    assert roll_loops(program) is program


def test_products_of_large_matrices_are_joined_rather_than_rolled_up() -> None:
    def f(w: Any, u: Any) -> Any:
        for _ in range(200):
            u = ops.tanh(w @ u)
        return u

    few, many = (recorded(f, np.eye(n), np.ones((n, 1)))[0] for n in (3, 40))
    assert names(roll_loops(few))["loop"] == 1
    assert names(roll_loops(many))["loop"] == 0


def test_the_first_iteration_of_which_a_guard_does_not_hold_is_told() -> None:
    def f(u: Any, xs: Any) -> Any:
        for i in range(20):
            u = ops.sin(u) + xs[i] if xs[i] > 0 else -u
        return u

    program, after, (u, _) = rolled(f, np.float64(1.0), np.ones(20))
    assert names(after)["loop"] == 1
    for i in range(20):
        others = np.where(np.arange(20) == i, -1.0, 1.0)
        assert results(program, [u, others]) == results(after, [u, others]) == (i, "False")
        with pytest.raises(GuardFailure):
            interpret(after, [u, others])


def test_code_tells_of_the_iteration_too_where_iterations_read_no_rows() -> None:
    def f(u: Any) -> Any:
        for _ in range(60):
            u = ops.sin(u) * 1.01 if u > -0.5 else ops.cos(u)
            u = u - 0.03
        return u

    jitted = fdbr.jit(f)
    for start in np.linspace(-1.0, 2.0, 20).tolist():
        assert_same_values(jitted(start), f(start), ulps=64)
    assert "replay raised" not in str(jitted.report())
    assert any(loops(program) for program in jitted.programs())


def test_values_of_all_iterations_may_be_results() -> None:
    def f(u: Any) -> Any:
        out = []
        for _ in range(20):
            u = ops.sin(u)
            out.append(u)
        return out

    program, after, leaves = rolled(f, np.ones(3))
    assert list(map(bits, interpret(after, leaves))) == list(map(bits, interpret(program, leaves)))


def test_effects_of_iterations_are_had_in_their_order() -> None:
    seen: list[float] = []

    def f(u: Any) -> Any:
        for _ in range(20):
            u = ops.sin(u)
            fdbr.debug.callback(lambda value: seen.append(float(value)), u)
        return u

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[roll_loops.__module__], "LEAST", LEAST)
        jitted = fdbr.jit(f)
        jitted(np.float64(1.0))
        first = list(seen)
        seen.clear()
        assert_same_values(jitted(np.float64(1.0)), f(np.float64(1.0)))
    np.testing.assert_allclose(seen[:20], first, rtol=1e-12)


def test_numbers_of_python_stay_numbers() -> None:
    def f(u: Any) -> Any:
        total = 0
        for i in range(20):
            u = u * 0.5 + i
            total = total + int(i)
        return u, total

    program, after, leaves = rolled(fdbr.value_and_grad(lambda u: f(u)[0]), 2.0)
    assert [type(x) for x in interpret(after, leaves)] == [float, np.float64]
    assert any(step.primitive is LOOP for step in after.steps if hasattr(step, "primitive"))
    assert len(program.steps) > len(after.steps)
