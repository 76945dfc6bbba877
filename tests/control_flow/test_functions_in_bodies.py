"""Functions that differentiate or iterate, in the bodies of jitted loops, under transformations.

Each function of a value of the loop has a closed form.  The reference is the eager loop with the
closed form in its body.
"""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("compiled_at_once")

B = np.ones(3)
D = np.diag([1.0, 2.0, 4.0])

cubed = fdbr.custom_vjp(lambda x: x**3)
cubed.defvjp(lambda x: (x**3, x), lambda x, ct: (ct * 3 * x**2,))
cubed_forward = fdbr.custom_jvp(lambda x: x**3)
cubed_forward.defjvp(lambda p, t: (p[0] ** 3, 3 * p[0] ** 2 * t[0]))


def cg(q, **more):
    return ops.linalg.cg(lambda v: q * v, B, tol=1e-12, **more)[0].sum()


def decay(q):
    return fdbr.odeint(lambda y, t, a: -a * y, np.ones(1), np.array([0.0, 1.0]), q)[-1, 0]


def squared_and_added(q):
    return fdbr.minimize(lambda x, a: (x - a) ** 2 + a**2, 1.0, q).value


FAST = {
    "cg": (cg, lambda q: 3 / q),
    "cg in checkpoint": (lambda q: fdbr.checkpoint(cg)(q), lambda q: 3 / q),
    "custom_vjp of cg": (lambda q: cubed(cg(q)), lambda q: 27 / q**3),
    "jit": (lambda q: fdbr.jit(lambda x: np.sin(q * x))(1.0), np.sin),
    "root": (lambda q: fdbr.root(lambda x, a: x * x - a, 1.0, q).x, np.sqrt),
}
DEEP = {
    "cg by a matrix": (lambda q: ops.linalg.cg(q * D, B, tol=1e-12)[0].sum(), lambda q: 1.75 / q),
    "cg of a moving right side": (
        lambda q: ops.linalg.cg(lambda v: 2 * q * v, q * q * B)[0].sum(),
        lambda q: 1.5 * q,
    ),
    "cg with a preconditioner": (lambda q: cg(q, M=lambda v: v / q), lambda q: 3 / q),
    "cg with a start": (lambda q: cg(q, x0=q * B), lambda q: 3 / q),
    "gradient of cg": (fdbr.grad(cg), lambda q: -3 / q**2),
    "gradient of cg by another value": (
        lambda q: fdbr.grad(lambda x: ops.linalg.cg(lambda v: q * v, x * B)[0].sum())(1.0),
        lambda q: 3 / q,
    ),
    "cg in vmap": (lambda q: fdbr.vmap(lambda x: cg(q * x))(B).sum(), lambda q: 9 / q),
    "solve": (lambda q: ops.linalg.solve(q * D, B).sum(), lambda q: 1.75 / q),
    "custom_vjp": (cubed, lambda q: q**3),
    "custom_jvp": (cubed_forward, lambda q: q**3),
    "fixed_point": (
        lambda q: fdbr.fixed_point(lambda x, a: 0.5 * (x + a / x), 1.0, q).x,
        np.sqrt,
    ),
    "minimize": (squared_and_added, lambda q: q**2),
    "odeint": (decay, lambda q: np.exp(-q)),
    "checkpoint": (lambda q: fdbr.checkpoint(lambda x: np.sin(q * x))(1.0), np.sin),
    "scan": (
        lambda q: fdbr.scan(lambda c, x: (c * q * x, None), 1.0, np.array([1.0, 2.0]))[0],
        lambda q: 2 * q * q,
    ),
    "fori_loop": (lambda q: fdbr.fori_loop(0, 3, lambda i, c: c * q, q), lambda q: q**4),
    "gradient": (lambda q: fdbr.grad(lambda x: np.sin(x * q))(1.0), lambda q: q * np.cos(q)),
    "hessian": (
        lambda q: fdbr.hessian(lambda x: np.sin(x * q))(1.0),
        lambda q: -q * q * np.sin(q),
    ),
    "harvest": (
        lambda q: fdbr.harvest(lambda x: fdbr.mark("a", np.sin(x * q)))(1.0)[1]["a"],
        np.sin,
    ),
}


def by_rows(p):
    xs = np.array([0.7, 1.1])
    return lambda a: fdbr.scan(lambda c, x: (c * 0.5 + p(a * x + 0.1 * c), p(x + a)), 0 * a, xs)[0]


def by_elements(p):
    xs = np.array([0.7, 1.1, 1.3])
    return lambda a: fdbr.scan(lambda c, q: (c, p(q)), 0.0, a * xs)[1].sum()


def by_numbers(p):
    return lambda a: fdbr.fori_loop(
        0, 2, lambda i, c: c * 0.5 + p(a * (1 + 0.2 * i) + 0.1 * c), 0.0
    )


def by_condition(p):
    def body(s):
        return s[0] + 1.0, s[1] * 0.5 + p(a_of(s) + 0.1 * s[1]), s[2]

    def a_of(s):
        return s[2] * (1 + 0.2 * s[0])

    return lambda a: fdbr.while_loop(lambda s: s[0] < 1.5, body, (0.0, 0 * a, a))[1]


def nested(p):
    def outer(a, c, x):
        return fdbr.fori_loop(0, 2, lambda i, d: 0.5 * d + p(a * x + 0.1 * c + 0.1 * d), c)

    xs = np.array([0.7, 1.1])
    return lambda a: fdbr.scan(lambda c, x: (outer(a, c, x), None), 0 * a, xs)[0]


LOOPS = {f.__name__: f for f in (by_rows, by_elements, by_numbers, by_condition, nested)}
ONE, SOME = np.float64(0.9), np.array([0.9, 1.2, 1.5])


def slope(f):
    return lambda a: fdbr.jvp(f, (a,), (1.0,))[1]


# How a loop is transformed with and without jit, and its argument.
HOW = {
    "jit(grad)": (fdbr.grad, lambda f: fdbr.jit(fdbr.grad(f)), ONE),
    "jit(jvp)": (slope, lambda f: fdbr.jit(slope(f)), ONE),
    "grad(jit)": (fdbr.grad, lambda f: fdbr.grad(fdbr.jit(f)), ONE),
    "jvp(jit)": (slope, lambda f: slope(fdbr.jit(f)), ONE),
    "jit(linearize)": (
        slope,
        lambda f: fdbr.jit(lambda a: fdbr.linearize(f, a)[1](1.0)),
        ONE,
    ),
    "vmap(jit(grad))": (
        lambda f: fdbr.vmap(fdbr.grad(f)),
        lambda f: fdbr.vmap(fdbr.jit(fdbr.grad(f))),
        SOME,
    ),
    "jit(vmap(grad))": (
        lambda f: fdbr.vmap(fdbr.grad(f)),
        lambda f: fdbr.jit(fdbr.vmap(fdbr.grad(f))),
        SOME,
    ),
    "jit(grad(vmap))": (
        lambda f: fdbr.vmap(fdbr.grad(f)),
        lambda f: fdbr.jit(fdbr.grad(lambda a: fdbr.vmap(f)(a).sum())),
        SOME,
    ),
    "jit(hessian)": (fdbr.hessian, lambda f: fdbr.jit(fdbr.hessian(f)), ONE),
    "hessian(jit)": (fdbr.hessian, lambda f: fdbr.hessian(fdbr.jit(f)), ONE),
}


def check(loop, function, ways):
    f, closed = {**FAST, **DEEP}[function]
    for how in ways:
        plainly, jitted, at = HOW[how]
        expected = plainly(LOOPS[loop](closed))(at)
        assert_allclose(jitted(LOOPS[loop](f))(at), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("function", FAST)
def test_a_function_of_a_value_of_the_loop_has_its_derivative(function, loop):
    check(loop, function, ["jit(grad)", "jit(jvp)", "grad(jit)"])


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("function", [*FAST, *DEEP])
def test_a_function_of_a_value_of_the_loop_has_its_derivative_under_all_transformations(
    function, loop
):
    second = "odeint" != function  # takes most of a minute
    check(loop, function, [how for how in HOW if second or "hessian" not in how])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("custom", [fdbr.custom_vjp, fdbr.custom_jvp])
def test_a_custom_function_may_capture_a_value_of_the_loop_if_nothing_is_differentiated(
    custom, loop
):
    def times(q):
        f = custom(lambda x: x * q)
        if custom is fdbr.custom_vjp:
            f.defvjp(lambda x: (x * q, None), lambda _, ct: (ct * q,))
        else:
            f.defjvp(lambda p, t: (p[0] * q, t[0] * q))
        return f(q)

    jitted = fdbr.jit(LOOPS[loop](times))
    assert_allclose(jitted(ONE), LOOPS[loop](lambda q: q * q)(ONE))
    assert "uses a traced value that is not an argument" in str(jitted.report())
    with pytest.raises(TypeError, match="no argument"):
        fdbr.grad(jitted)(ONE)
