"""An error is of the function that was called, or of one of fdbr's that the user gave to it."""

import functools
import sys

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops

LAYER = nn.Linear.init(fdbr.random.key(0), 4, 1)
INV = r"fdbr\.ops\.linalg\.inv: x must have at least two"


def custom(f, bwd):
    return fdbr.custom_vjp(f, fwd=lambda x: (f(x), None), bwd=bwd)


FORWARD = {
    "an operation": (ops.linalg.inv, INV),
    "one of NumPy": (np.linalg.inv, INV),
    "a partial one": (functools.partial(ops.stack, axis=7), r"fdbr\.ops\.stack: "),
    "a jitted one": (fdbr.jit(ops.linalg.inv), INV),
    "a checkpointed one": (fdbr.checkpoint(ops.linalg.inv), INV),
    "a mapped one": (fdbr.vmap(ops.linalg.inv), INV),
    "a custom one": (custom(ops.linalg.inv, lambda _, ct: (ct,)), INV),
    "a layer": (LAYER, r"fdbr\.nn\.Linear with weight float32\[1,4\]: x must have shape"),
}
BACKWARD = {
    "a checkpoint": (
        lambda: fdbr.checkpoint(Changing()),
        RuntimeError,
        r"fdbr\.checkpoint: Changing gave another result",
    ),
    "a custom rule": (
        lambda: custom(ops.sum, lambda _, ct: (np.ones(7),)),
        ValueError,
        r"fdbr\.custom_vjp: bwd of sum: the cotangent of argument 0 must have shape",
    ),
}
X = np.ones(3)
CALLS = {
    "grad": lambda f: fdbr.grad(f)(X),
    "jvp": lambda f: fdbr.jvp(f, (X,), (X,)),
    "vjp": lambda f: fdbr.vjp(f, X)[1](1.0),
    "hvp": lambda f: fdbr.hvp(f, (X,), (X,)),
    "hessian": lambda f: fdbr.hessian(f)(X),
    "linearize": lambda f: fdbr.linearize(f, X),
    "fixed_point": lambda f: fdbr.fixed_point(f, X),
    "minimize": lambda f: fdbr.minimize(f, X),
    "map": lambda f: fdbr.tree.map(f, {"a": X}),
}


class Changing:
    """A function that multiplies by another number every time."""

    def __init__(self):
        self.count = 0

    def __call__(self, x):
        self.count += 1
        return ops.sum(x) * self.count


PAIRS = [
    (given, call)
    for given in FORWARD
    for call in CALLS
    # Where nothing is traced it is NumPy itself that raises.
    if given != "one of NumPy" or call not in ("map", "fixed_point")
]


@pytest.mark.parametrize(("given", "call"), PAIRS)
def test_an_error_of_a_function_that_was_given_keeps_its_name(given, call):
    f, message = FORWARD[given]
    with pytest.raises((TypeError, ValueError, IndexError), match=rf"^{message}"):
        CALLS[call](f)


@pytest.mark.parametrize("call", ["grad", "vjp", "hvp", "hessian"])
@pytest.mark.parametrize("rule", BACKWARD)
def test_so_does_one_of_a_rule_in_the_backward_pass(rule, call):
    make, error, message = BACKWARD[rule]
    with pytest.raises(error, match=rf"^{message}"):
        CALLS[call](make())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fdbr.hvp(np.sin, (X,), (X,)), r"fdbr\.hvp: sin must return a real floating"),
        (lambda: fdbr.hessian(np.sum, "x"), r"fdbr\.hessian: argnums must be"),
        (lambda: fdbr.tree.dot(X, np.ones(4)), r"fdbr\.tree\.dot: the leaves differ"),
    ],
)
def test_one_of_a_function_that_was_called_within_has_the_name_of_the_outer_one(call, message):
    with pytest.raises((TypeError, ValueError), match=rf"^{message}"):
        call()


def test_a_dtype_of_another_package_says_which():
    with pytest.raises(TypeError, match="one of ml_dtypes', which NumPy knows once that is impor"):
        ops.astype(X, "float8_unheard_of")


def test_an_error_of_a_call_without_arguments_lists_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.setitem(sys.modules, "hypothesis.strategies", None)
    with pytest.raises(ImportError, match=r"fdbr\.testing\.keys: .*") as caught:
        fdbr.testing.keys()
    assert "got" not in str(caught.value)
    assert str(caught.value).count("fdbr.testing.keys") == 1
