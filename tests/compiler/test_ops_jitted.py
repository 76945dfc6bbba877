"""Every operation, its gradient and its batches of gradients: jitted against eager.

Each function is recorded at one point and replayed at another.  Without passes and kernels the
results are bitwise the same; with them they agree to a few units in the last place.  Kernels take
long to compile: they run with ``HYPOTHESIS_PROFILE=thorough``.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from ops.cases import CASES, Case, bent, few
from ops.laws import example
from ops.reasons import DECIDING, WITHOUT_DERIVATIVE, X
from sharing import sampled, shared

import fdbr
from compiler.comparing import ULPS, assert_same, optimised, plainly
from fdbr import ops, tree
from fdbr.compiler.ir.program import Guard, Instruction

THOROUGH = settings.default.max_examples > 100
SHARE = 1 if THOROUGH else 3  # of the cases, that are batched
# What is left of a derivative after its terms have cancelled has fewer digits.
CANCELLING = {"batch_norm": 64, "instance_norm": 64, "softmax": 16}


def points(args: Any, dtype: str) -> Any:
    """Two points for a function: the arguments, and others like them."""
    cast = tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in args)
    return cast, tuple(example(x, 1) for x in cast)


def gradient(case: Case) -> Any:
    """The gradient of the sum of a case's bent output."""

    def f(*args: Any) -> Any:
        _, pullback = fdbr.vjp(lambda args: bent(case.function(*args)), args)
        out = case.function(*args)
        return pullback(np.ones(np.shape(out), dtype=np.result_type(out)))[0]

    return f


def batched(case: Case) -> Any:
    """The gradients at both points at once."""

    def loss(args: Any) -> Any:
        return bent(case.function(*args)).sum()

    def f(*args: Any) -> Any:
        pairs = [np.stack([x, example(x, 1)]) for x in args]
        return fdbr.vmap(fdbr.grad(loss))(tuple(pairs))

    return f


def check(jitted: Any, f: Any, points: Any, ulps: int) -> None:
    """Compare at the first point, where it is recorded, and at the second."""
    with np.errstate(all="ignore"):
        for args in points:
            assert_same(jitted(*args), f(*args), ulps)


def once(case: Case, test: Any) -> None:
    """Run a test at a second example of a case; the first is the simplest there is."""
    found: list[Any] = []

    @few(20)
    @given(case.arguments)
    def draw(args: Any) -> None:
        found.append(args)

    draw()
    test(found[-1])


@pytest.mark.parametrize("case", shared(CASES), ids=repr)
def test_values_and_gradients_are_bitwise_those_of_eager_mode(case):
    def test(args):
        check(plainly(case.function), case.function, points(args, "f4"), 0)
        check(plainly(gradient(case)), gradient(case), points(args, "f8"), 0)

    once(case, test)


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 1), ids=repr)
def test_values_and_gradients_agree_with_passes_and_in_a_thorough_run_with_kernels(case):
    jit = fdbr.jit if THOROUGH else optimised

    def test(args):
        ulps = CANCELLING.get(case.op, ULPS)
        check(jit(case.function), case.function, points(args, "f8"), ulps)
        check(jit(gradient(case)), gradient(case), points(args, "f4"), ulps)

    once(case, test)


# Programs factor small matrices by kernels at every size, and eager mode from TUNING's size on.
FACTORED = {"linalg.det"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op not in FACTORED][:: 1 if THOROUGH else 6], ids=repr
)
def test_steps_outside_of_fused_kernels_give_the_bits_of_eager_mode(case):
    def test(args):
        jitted = fdbr.jit(case.function)
        found, desired = jitted(*args), case.function(*args)
        steps = [step for program in jitted.programs() for step in program.steps]
        fused = not all(type(step) in (Instruction, Guard) for step in steps)
        assert_same(found, desired, CANCELLING.get(case.op, ULPS) if fused else 0)

    once(case, test)


@pytest.mark.parametrize("case", [c for c in CASES if c.op not in DECIDING][::SHARE], ids=repr)
def test_batches_of_gradients_are_bitwise_those_of_eager_mode(case):
    def test(args):
        f = batched(case)
        check(plainly(f), f, points(args, "f8"), 0)

    once(case, test)


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_operations_without_a_derivative_are_those_of_eager_mode(name):
    f = WITHOUT_DERIVATIVE[name][1]
    for x in (X, X.astype("f4")):
        check(plainly(f), f, [(x,), (x[::-1],)], 0)
        check(optimised(f), f, [(x,), (x[::-1],)], ULPS)


SCALARS = [np.float32(0.5), np.int32(2), np.array(0.5), 0.5]
MORE: list[Any] = [(), ((),), (0.25, 0.75), ("float32",)]


def sort_of(out: Any) -> Any:
    return tree.map(lambda x: (type(x), getattr(x, "dtype", None), np.shape(x)), out)


@pytest.mark.slow
@pytest.mark.parametrize("more", MORE)
def test_functions_of_scalars_give_arrays_or_scalars_as_in_eager_mode(more):
    functions = [f for name in ops.__all__ if callable(f := getattr(ops, name))]
    for f in functions:
        for x in SCALARS if not isinstance(f, type) else []:
            with np.errstate(all="ignore"):
                try:
                    desired = sort_of(f(x, *more))
                except Exception:  # it takes other arguments
                    continue
                g = plainly(lambda x, f=f: f(x, *more))
                assert sort_of(g(x)) == desired, f"{f.__name__} of {x!r}"
