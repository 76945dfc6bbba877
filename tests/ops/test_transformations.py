"""Every transformation of every operation: `vjp`, `jvp` and `vmap`, nested to the second order.

`check_grads` in all its modes checks, for every subset of batched arguments, values, gradients,
tangents, `vmap` of the function and of its derivatives of both orders, and the derivatives of
`vmap` of the function and of its derivatives: `jvp(vmap(grad))` among them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from sharing import sampled, shared

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose, check_grads
from ops.cases import CASES, Case, bent, few
from ops.reasons import DECIDING, REAL, REAL_CASES

THOROUGH = settings.default.max_examples > 100
PACKAGE = str(Path(fdbr.__file__).parent)


def function_of(case: Case) -> Callable[..., Any]:
    return lambda *args: bent(case.function(*args))


def cast(args: Any, dtype: Any) -> Any:
    """The arguments with the floating ones in another dtype; complex ones leave the real axis."""
    if np.dtype(dtype).kind != "c":
        return tuple(x.astype(dtype) if x.dtype.kind == "f" else x for x in args)
    return tuple(
        x + 1j * (0.375 + np.roll(x.ravel(), 1).reshape(x.shape) / 16) if x.dtype.kind == "f" else x
        for x in args
    )


def after_the_first(case: Case, check: Callable[[Any], None], share: int = 20) -> None:
    """Check at some examples, but not at the first, which is the simplest: others do that."""
    count = 0

    @few(share)
    @given(case.arguments)
    def run(args: Any) -> None:
        nonlocal count
        count += 1
        if count > 1:
            check(args)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 0), ids=repr)
def test_vmap_agrees_with_a_loop_in_every_order(case):
    order = 1  # for the first example, which is the simplest

    @few(20)
    @given(case.arguments)
    def check(args):
        nonlocal order
        check_grads(function_of(case), *args, order=order, modes=("vmap",))
        order = 2

    check()


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 1), ids=repr)
def test_every_transformation_agrees_in_float32(case):
    order = 2 if THOROUGH else 1  # of complex numbers it is 2 in any case
    after_the_first(
        case, lambda args: check_grads(function_of(case), *cast(args, "float32"), order=order)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    sampled([c for c in CASES if c.op not in REAL and c.name not in REAL_CASES], 2),
    ids=repr,
)
def test_every_transformation_agrees_of_complex_numbers(case):

    def check(args: Any) -> None:
        there = cast(args, complex)
        check_grads(function_of(case), *there, modes=("vjp", "jvp"))
        check_grads(function_of(case), *there, order=2 if THOROUGH else 1, modes=("vmap",))

    after_the_first(case, check)


@pytest.mark.parametrize("case", [c for c in CASES if c.op in REAL], ids=repr)
def test_operations_of_real_numbers_refuse_complex_ones(case):
    @few(20)
    @given(case.arguments)
    def check(args):
        with pytest.raises((TypeError, ValueError)):
            check_grads(function_of(case), *cast(args, complex), order=1)

    check()


@pytest.mark.parametrize("case", shared(CASES), ids=repr)
def test_examples_of_a_batch_may_be_far_from_each_other(case):
    """Other orders of elements and other indices, which no small change of the arguments makes."""

    def check(args: Any) -> None:
        other = [np.roll(x.ravel(), 1).reshape(x.shape) for x in args]
        floating = [x.dtype.kind == "f" for x in args]
        for batched in {(True,) * len(args), tuple(floating), tuple(not f for f in floating)}:
            examples = args, [y if b else x for x, y, b in zip(args, other, batched, strict=True)]
            axes = tuple(0 if b else None for b in batched)
            values = [
                np.stack(pair) if b else pair[0]
                for *pair, b in zip(*examples, batched, strict=True)
            ]
            for f in (case.function, gradient_of(case)) if any(batched) else ():
                found = fdbr.vmap(f, axes)(*values)
                for i, example in enumerate(examples):
                    part = tree.map(lambda x, i=i: x[i], found)
                    assert_allclose(part, f(*example), rtol=1e-9, atol=1e-9)

    after_the_first(case, check)


def gradient_of(case: Case) -> Callable[..., Any]:
    """The gradient of the case's bent output, summed, by its floating arguments."""

    def gradient(*args: Any) -> Any:
        places = tuple(i for i, x in enumerate(args) if x.dtype.kind == "f")
        return list(fdbr.grad(lambda *args: ops.sum(bent(case.function(*args))), places)(*args))

    return gradient


# --- no loops -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", sampled([c for c in CASES if c.op not in DECIDING], 1), ids=repr)
def test_the_work_of_a_batch_does_not_depend_on_its_size(case):
    """Nothing in fdbr runs line by line over examples: as many lines for many as for few."""

    def check(args: Any) -> None:
        for size in (2, 5):  # what is imported and remembered is so now
            forward_over_batch(case, args, size)
        few, many = (lines_run(forward_over_batch, case, args, size) for size in (2, 5))
        assert many - few <= few // 200  # short axes are reduced slice by slice

    after_the_first(case, check)


def forward_over_batch(case: Case, args: Any, size: int) -> Any:
    """``jvp(vmap(grad))``: values, tangents and gradients, all of them of a batch."""
    axes = tuple(0 if x.dtype.kind == "f" else None for x in args)
    batch = [np.stack([x] * size) if x.dtype.kind == "f" else x for x in args]
    tangents = [b if axis == 0 else None for b, axis in zip(batch, axes, strict=True)]
    return fdbr.jvp(fdbr.vmap(gradient_of(case), axes), batch, tangents)


def lines_run(call: Callable[..., Any], *args: Any) -> int:
    """How many lines of fdbr a call runs, counted each time."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        elif not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*args)
    finally:
        sys.settrace(before)
    return count


def test_loops_over_a_batch_would_be_noticed():
    def looped(x):
        return [ops.divide(row, 2.0) for row in x]

    few, many = (lines_run(looped, np.ones(n)) for n in (2, 5))
    assert few < many
