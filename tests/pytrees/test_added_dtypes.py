"""Floating dtypes that ml_dtypes adds to NumPy, under the transformations."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from ops.short import added, ml_dtypes

import fdbr
from fdbr import ops, tree
from fdbr.core.tracer_methods import ufuncs
from fdbr.testing import check_grads
from fdbr.train import optim

FLOATS = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e4m3b11fnuz"]
WITHOUT_DERIVATIVES = ["float8_e8m0fnu", "float6_e2m3fn", "float4_e2m1fn"]

pytestmark = added


def bent(x: Any) -> Any:
    return ops.sum(ops.sin(x) * x)


def vector(dtype: Any) -> Any:
    return np.array([0.5, 0.75, -1.0]).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_transformation_keeps_an_added_dtype(dtype: str) -> None:
    x = vector(dtype)
    exact = x.astype(float)
    rough = 2 * float(ops.finfo(dtype).eps)
    slope = np.sin(exact) + exact * np.cos(exact)
    bow = 2 * np.cos(exact) - exact * np.sin(exact)
    gradient = fdbr.grad(bent)
    one = np.ones_like(x)
    found = {
        "grad": (gradient(x), slope),
        "vjp": (fdbr.vjp(bent, x)[1](x.dtype.type(1))[0], slope),
        "jacfwd": (fdbr.jacfwd(bent)(x), slope),
        "vmap of grad": (fdbr.vmap(gradient)(np.stack([x, x]))[1], slope),
        "vmap of grad of numbers": (fdbr.vmap(gradient)(x), slope),
        "jit of grad": (fdbr.jit(gradient)(x), slope),
        "checkpoint": (fdbr.grad(fdbr.checkpoint(bent))(x), slope),
        "hvp": (fdbr.hvp(bent, (x,), (one,)), bow),
        "jvp of grad": (fdbr.jvp(gradient, (x,), (one,))[1], bow),
        "grad of jvp": (fdbr.grad(lambda x: fdbr.jvp(bent, (x,), (np.ones_like(x),))[1])(x), bow),
        "a number": (gradient(x[0]), slope[0]),
        "no dimension": (gradient(x[0].reshape(())), slope[0]),
        "its second derivative": (fdbr.grad(gradient)(x[0].reshape(())), bow[0]),
    }
    for name, (value, expected) in found.items():
        assert value.dtype == x.dtype, name
        error = np.abs(np.asarray(value).astype(float) - expected)
        assert np.all(error <= rough * np.maximum(1, np.abs(expected))), (name, value, expected)
    assert type(gradient(x[0])) is x.dtype.type


@pytest.mark.parametrize("other", ["float16", "float32", "float64", "int8", "int32", "bool"])
def test_an_added_dtype_beside_another_promotes_as_in_numpy(other: str) -> None:
    x, y = vector("bfloat16"), np.array([1, 0, 1]).astype(other)
    for f in (
        *(np.multiply, np.add, np.maximum, np.where, np.power, np.concatenate),
        *(np.dot, np.inner, np.outer, np.matmul),
        *(lambda x, y: np.tensordot(x, y, 0), lambda x, y: np.matmul(y, x[:, None])),
    ):
        try:
            out = called(f, x, y)
        except TypeError:
            with pytest.raises(TypeError, match="bfloat16"):
                fdbr.vjp(lambda x, f=f: called(f, x, y), x)
            continue
        value, pullback = fdbr.vjp(lambda x, f=f: called(f, x, y), x)
        if getattr(out, "dtype", np.dtype(object)).kind == "O":  # of what has no dtype together
            out = np.asarray(out, value.dtype)
        assert value.dtype == out.dtype
        assert np.array_equal(value.astype(float), out.astype(float), equal_nan=True)
        assert pullback(np.ones_like(out))[0].dtype == x.dtype


def called(f: Any, x: Any, y: Any) -> Any:
    if f is np.where:
        return f([True, False, True], x, y)
    return f([x, y]) if f is np.concatenate else f(x, y)


@pytest.mark.parametrize("number", [2, 2.5])
def test_python_numbers_beside_an_added_dtype_do_what_they_do_in_numpy(number: Any) -> None:
    x = vector("bfloat16")
    for f in (lambda x: x * number, lambda x: number - x, lambda x: x**2 / number):
        out, pullback = fdbr.vjp(f, x)
        assert out.dtype == f(x).dtype == ops.result_type(x, number)
        assert pullback(np.ones_like(out))[0].dtype == x.dtype


@pytest.mark.parametrize("dtype", WITHOUT_DERIVATIVES)
def test_what_can_hold_no_derivative_is_refused_by_name(dtype: str) -> None:
    with pytest.raises(TypeError, match=rf"fdbr\.grad: .*no leaf to differentiate.*{dtype}"):
        fdbr.grad(ops.sum)(np.ones(3).astype(dtype))
    with pytest.raises(TypeError, match=rf"fdbr\.ops\.astype: .*cannot become {dtype}"):
        fdbr.grad(lambda x: ops.sum(ops.astype(ops.astype(x, dtype), float)))(np.ones(3))


def test_questions_about_an_added_dtype_are_answered() -> None:
    bfloat16 = np.dtype("bfloat16")
    assert ops.finfo("bfloat16").eps == ops.finfo(ml_dtypes.bfloat16).eps == 2.0**-7
    assert ops.finfo(vector(bfloat16)).bits == 16
    assert ops.isdtype(bfloat16, "real floating")
    assert ops.isdtype(bfloat16, ("bool", "numeric"))
    assert ops.isdtype(bfloat16, bfloat16)
    assert not ops.isdtype(bfloat16, "integral")
    assert ops.can_cast(bfloat16, "float32")
    assert fdbr.grad(lambda x: ops.sum(ops.astype(x, bfloat16) * 3))(np.ones(2)).dtype == float
    assert fdbr.typed(x="float[n]")(lambda x: x)(vector(bfloat16)).dtype == bfloat16
    assert fdbr.random.uniform(fdbr.random.key(0), (3,), bfloat16).dtype == bfloat16


def test_derivatives_of_an_added_dtype_are_checked_within_its_digits() -> None:
    x = np.linspace(0.5, 1, 6).astype("bfloat16").reshape(2, 3)
    check_grads(lambda x: x * ops.sin(x), x)
    check_grads(lambda x: x @ x.T, x)
    wrong = fdbr.custom_vjp(lambda x: x * x)
    wrong.defvjp(lambda x: (x * x, x), lambda x, ct: (9 * ct * x,))
    with pytest.raises(AssertionError):
        check_grads(wrong, x, modes=("vjp",))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", [optim.sgd(0.1), optim.momentum_sgd(0.05), optim.adam(0.05)])
def test_optimizers_train_parameters_of_16_bits(optimizer: Any, dtype: str) -> None:
    params = {"w": vector(dtype), "b": np.ones(2, np.float32)}
    state = optimizer.init(params)

    def loss(params: Any) -> Any:
        return sum(ops.sum(ops.astype(x, "float32") ** 2) for x in tree.leaves(params))

    first = loss(params)
    for _ in range(40):
        updates, state = optimizer.update(fdbr.grad(loss)(params), state, params)
        assert updates["w"].dtype == params["w"].dtype
        params = optim.apply_updates(params, updates)
    assert params["w"].dtype == dtype
    assert params["b"].dtype == np.float32
    assert loss(params) < first / 20
    everything = tree.leaves(state)
    assert {x.dtype for x in everything if hasattr(x, "dtype")} <= {
        params["w"].dtype,
        np.dtype("f4"),
    }


def test_arithmetic_on_trees_keeps_an_added_dtype() -> None:
    x = {"a": vector("bfloat16")}
    for made in (tree.scale(2.5, x), tree.axpy(2.5, x, x), tree.add(x, x), tree.zeros_like(x)):
        assert made["a"].dtype == "bfloat16"
    flat, back = tree.ravel(x)
    assert flat.dtype == back(flat)["a"].dtype == "bfloat16"
    assert tree.trainable(x)["a"] is x["a"]


def test_a_backward_function_gets_cotangents_of_the_dtype_of_its_values() -> None:
    seen = []

    @fdbr.custom_vjp
    def twice(x: Any) -> Any:
        return x * 2

    def backward(_: Any, ct: Any) -> Any:
        seen.append(ct.dtype)
        return (ct * 2.0,)

    twice.defvjp(lambda x: (x * 2, None), backward)
    x = vector("bfloat16")
    assert fdbr.grad(lambda x: ops.sum(twice(x) * 2.5))(x).dtype == x.dtype
    assert fdbr.grad(lambda x: ops.sum(ops.sigmoid(twice(x) / 3)))(x).dtype == x.dtype
    assert set(seen) == {x.dtype}


def test_the_package_that_adds_dtypes_is_never_imported() -> None:
    code = "import sys, fdbr, fdbr.nn, fdbr.train; sys.exit('ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


BESIDE = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "F"]
PLAIN_UFUNCS = [ufunc for ufunc in ufuncs if not ufunc.signature]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("ufunc", PLAIN_UFUNCS, ids=lambda ufunc: ufunc.__name__)
def test_a_ufunc_computes_in_numpys_dtype_beside_every_other(ufunc: np.ufunc) -> None:
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 1.0, 3.0])
    own = np.dtype("bfloat16")
    kinds: list[Any] = [(own,) * ufunc.nin]
    if ufunc.nin == 2:
        kinds += [pair for kind in BESIDE for pair in ((own, kind), (kind, own))]
    for chosen in kinds:
        operands = [v.astype(kind) for v, kind in zip((x, y), chosen, strict=False)]
        try:
            outs = ufunc(*operands)
        except Exception:
            continue  # what NumPy has not
        found = fdbr.vmap(ufunc)(*(v[None] for v in operands))
        for one, other in zip(tree.leaves(found), tree.leaves(outs), strict=True):
            assert one.dtype == other.dtype, chosen
            values = (v.astype(complex) for v in (one[0], other))
            np.testing.assert_allclose(*values, 0.02, 0.02, err_msg=str(chosen))
