"""The functions of `fdbr.ops.special`: every one of SciPy's, with its derivatives."""

import inspect
import math

import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.ops import special
from fdbr.testing import assert_allclose, check_grads
from ops.cases import bent
from ops.cases_scipy import SPECIAL

every_case = pytest.mark.parametrize("case", SPECIAL, ids=repr)
UFUNCS = sorted(name for name, f in vars(sp).items() if isinstance(f, np.ufunc))
COMPLEX = (  # name, orders and the like
    *(("airy",), ("dawsn",), ("erfi",), ("exp1",), ("expi",), ("fresnel",), ("lambertw",)),
    *(("shichi",), ("sici",), ("spence",), ("wofz",), ("wrightomega",)),
    *((name, 1.5) for name in ("jv", "yv", "iv", "kv", "kve", "hyp0f1")),
    *((name, 1.5) for name in ("hankel1", "hankel1e", "hankel2", "hankel2e")),
    *((f"spherical_{kind}", 2) for kind in ("jn", "yn", "in", "kn")),
    *((f"eval_{name}", 2.5) for name in ("chebyt", "legendre", "sh_chebyu", "laguerre")),
    ("hyp1f1", 0.5, 1.5),
    ("hyp2f1", 0.5, 1.5, 2.5),
)


def drawn(case):
    """The arguments of a case, of which it has but one example."""
    found = []
    given(case.arguments)(lambda args: found.append(args))()
    return found[0]


def gradient(case):
    return fdbr.grad(lambda *args: ops.sum(bent(case.function(*args))), case_places(case))


def case_places(case):
    return tuple(range(len(drawn(case))))


@pytest.mark.slow
@every_case
def test_values_are_scipys_and_derivatives_of_two_orders_those_of_differences(case):
    args = drawn(case)
    assert_allclose(case.function(*args), case.reference(*args), rtol=1e-12)
    check_grads(lambda *args: bent(case.function(*args)), *args, modes=("vjp", "jvp"))


@every_case
def test_batches_and_float32_agree(case):
    args, derivative = drawn(case), gradient(case)
    desired = derivative(*args)
    batch = [np.stack([x, x[..., ::-1] if x.ndim else x]) for x in args]
    found = fdbr.vmap(derivative)(*batch)
    for i in range(2):
        alone = derivative(*(x[i] for x in batch))
        assert_allclose([x[i] for x in found], list(alone), rtol=1e-9, atol=1e-9)
    small = [x.astype(np.float32) for x in args]
    if np.isfinite(case.function(*small)).all():  # some of SciPy's are not
        in_float32 = derivative(*small)
        assert {g.dtype for g in in_float32} == {np.dtype(np.float32)}
        assert_allclose(in_float32, desired, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", SPECIAL[::16], ids=repr)
def test_jit_agrees(case):
    args, derivative = drawn(case), gradient(case)
    assert_allclose(fdbr.jit(derivative)(*args), derivative(*args), rtol=1e-9)


@pytest.mark.parametrize("row", COMPLEX, ids=lambda row: row[0])
def test_holomorphic_functions_are_differentiated_at_complex_numbers(row):
    name, *orders = row

    def f(z):
        out = getattr(special, name)(*orders, z)
        return sum(out[1:], out[0]) if isinstance(out, tuple) else out

    z, step = np.array([0.5 + 0.25j, 1.5 - 0.5j]), 1e-4
    slope = lambda z: fdbr.vjp(f, z)[1](np.ones(2, complex))[0]
    for g, derivative in (
        (f, slope),
        (slope, lambda z: fdbr.vjp(slope, z)[1](np.ones(2, complex))[0]),
    ):
        differences = (g(z + step) - g(z - step)) / (2 * step)
        assert_allclose(derivative(z), differences, rtol=1e-6, atol=1e-6)


# --- SciPy's own functions ----------------------------------------------------------


def test_every_ufunc_of_scipy_is_there():
    assert set(UFUNCS) <= set(special.__all__)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UFUNCS)
def test_every_ufunc_of_scipy_leads_to_the_operation_of_its_name(name):
    ufunc, op = getattr(sp, name), getattr(special, name)
    ones = [1] * (ufunc.nin - 1)
    x = np.array([0.25, 0.5])
    assert_allclose(fdbr.vmap(lambda x: ufunc(*ones, x))(x), op(*ones, x))
    for number in range(ufunc.nin):

        def slope(f, number=number):
            values = [*ones[:number], x, *ones[number:]]
            try:
                return fdbr.jvp(lambda x: f(*values[:number], x, *values[number + 1 :]), [x], [x])[
                    1
                ]
            except TypeError as error:
                return str(error)

        found = slope(ufunc)
        if isinstance(found, str):
            assert found == slope(op)
            refused = f"scipy.special.{op.__name__}: no derivative in"
            assert found.startswith(refused) or "not supported for the input types" in found
        else:
            assert_allclose(found, slope(op))


def test_signatures_name_the_operands_as_scipy_does():
    assert str(inspect.signature(special.jv)) == "(v, z, /)"
    assert "No derivative in v is known" in special.jv.__doc__


# --- where it is hard ---------------------------------------------------------------


def test_derivatives_exist_where_formulas_divide_zero_by_zero():
    for f, at, desired in (
        (special.j1, 0.0, 0.5),
        (lambda x: special.jv(1.0, x), 0.0, 0.5),
        (lambda x: special.spherical_jn(1, x), 0.0, 1 / 3),
        (lambda x: special.sici(x)[0], 0.0, 1.0),
        (lambda x: special.shichi(x)[0], 0.0, 1.0),
        (special.spence, 1.0, -1.0),
        (special.ellipk, 0.0, math.pi / 8),
        (special.ellipe, 0.0, -math.pi / 8),
        (lambda m: special.ellipkinc(0.5 * math.pi, m), 0.0, math.pi / 8),
        (special.exprel, 0.0, 0.5),
        (lambda lmbda: special.boxcox(2.0, lmbda), 0.0, math.log(2) ** 2 / 2),
        (special.rgamma, -1.0, -1.0),
        (special.rgamma, 0.0, 1.0),
        (special.lambertw, 0.0, 1.0),
        (special.beip, 0.0, 0.5),
    ):
        slope = fdbr.grad(lambda x, f=f: ops.real(f(x)))
        at = np.array(at)
        with np.errstate(divide="ignore", invalid="ignore"):  # in outputs that are not used
            assert_allclose(slope(at), desired, rtol=1e-13)
            assert np.isfinite(fdbr.grad(slope)(at))


@given(st.floats(11, 1e6))
def test_derivatives_of_dawsons_integral_keep_their_digits_far_out(x):
    square = 1 / (2 * x * x)
    desired = -square * (1 + 3 * square * (1 + 5 * square * (1 + 7 * square)))
    assert_allclose(fdbr.grad(special.dawsn)(x), desired, rtol=1e-6)
    assert_allclose(
        fdbr.grad(lambda x: ops.imag(special.wofz(x)))(x),
        2 / math.sqrt(math.pi) * desired,
        rtol=1e-6,
    )


@given(st.floats(0.1, 30), st.floats(0.01, 0.99))
def test_inverses_have_the_reciprocal_derivative(a, y):
    slope = fdbr.grad(special.gammaincinv, 1)(a, y)
    x = special.gammaincinv(a, y)
    assert_allclose(slope * fdbr.grad(special.gammainc, 1)(a, x), 1, rtol=1e-9)
    by_a = fdbr.grad(lambda a: special.gammainc(a, special.gammaincinv(a, y)))(a)
    assert abs(by_a) < 1e-9


def test_orders_may_be_arrays_of_integers():
    x, n = np.array([0.5, 1.5]), np.array([[0], [3]])
    for f in (special.eval_hermite, special.eval_legendre, special.yn, special.expn):
        slope = fdbr.grad(lambda x, f=f: ops.sum(f(n, x)))(x)
        alone = [fdbr.grad(lambda x, f=f, k=k: ops.sum(f(k, x)))(x) for k in (0, 3)]
        assert_allclose(slope, sum(alone), rtol=1e-12)


def test_a_softplus_of_large_numbers_is_the_number():
    assert special.softplus(1e5) == 1e5
    assert fdbr.grad(special.softplus)(1e5) == 1
