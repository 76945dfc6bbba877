"""Custom functions that call themselves within their rules, and that capture values of a batch."""

import functools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import fdbr
from fdbr import ops

X, W = np.array([0.7, 0.3, 0.5]), np.array([1.2, 0.5, 2.0])


# --- rules that call their own function --------------------------------------------


def linear():
    @fdbr.custom_jvp
    def f(x):
        return 3.0 * x

    return f.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))


def exponential():
    @fdbr.custom_jvp
    def f(x):
        return ops.exp(x)

    return f.defjvp(lambda primals, tangents: (f(*primals), f(*primals) * tangents[0]))


def one_after_the_other():
    @fdbr.custom_jvp
    def f(x):
        return 2.0 * x

    @fdbr.custom_jvp
    def g(x):
        return 2.0 * x

    f.defjvp(lambda primals, tangents: (g(*primals), g(*tangents)))
    g.defjvp(lambda primals, tangents: (f(*primals), f(*tangents)))
    return lambda x: f(x) * g(x)


def product():
    @fdbr.custom_jvp
    def f(a, b):
        return a * b

    def rule(primals, tangents):
        (a, b), (da, db) = primals, tangents
        return f(a, b), f(da, b) + f(a, db)

    f.defjvp(rule)
    return lambda x: f(ops.sin(x), x)


def by_reverse_rule():
    @fdbr.custom_vjp
    def f(x):
        return ops.exp(x)

    def forward(x):
        y = f(x)
        return y, y

    return f.defvjp(forward, lambda y, ct: (f(ops.log(y)) * ct,))


RECURSIVE = {
    "f(t)": (linear, lambda x: 3.0 * x),
    "f(x) * t": (exponential, ops.exp),
    "g(t) and f(t)": (one_after_the_other, lambda x: 4.0 * x * x),
    "f(t, b) + f(a, t)": (product, lambda x: ops.sin(x) * x),
    "fwd and bwd": (by_reverse_rule, ops.exp),
}
DERIVATIVES = {
    "grad": lambda f: fdbr.grad(f),
    "grad of grad": lambda f: fdbr.grad(fdbr.grad(f)),
    "grad of grad of grad": lambda f: fdbr.grad(fdbr.grad(fdbr.grad(f))),
    "jvp": lambda f: lambda x: fdbr.jvp(f, (x,), (1.0,))[1],
    "jvp of grad": lambda f: lambda x: fdbr.jvp(fdbr.grad(f), (x,), (1.0,))[1],
    "grad of jvp": lambda f: fdbr.grad(lambda x: fdbr.jvp(f, (x,), (1.0,))[1]),
    "linearize": lambda f: lambda x: fdbr.linearize(f, x)[1](1.0),
    "hessian": fdbr.hessian,
    "grad under vmap": lambda f: lambda x: fdbr.vmap(fdbr.grad(f))(np.array([x, -x])),
    "grad of vmap": lambda f: lambda x: fdbr.grad(lambda v: fdbr.vmap(f)(v).sum())(np.ones(2) * x),
    "jit of grad": lambda f: fdbr.jit(fdbr.grad(f)),
    "grad of jit": lambda f: fdbr.grad(fdbr.jit(f)),
    "grad of checkpoint": lambda f: fdbr.grad(fdbr.checkpoint(f)),
    "grad of scan": lambda f: fdbr.grad(
        lambda x: fdbr.scan(lambda c, _: (f(c), None), x, None, length=2)[0]
    ),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("rule", RECURSIVE)
def test_a_rule_may_call_its_own_function(rule, derivative):
    make, plain = RECURSIVE[rule]
    of = DERIVATIVES[derivative]
    assert np.allclose(of(make())(0.4), of(plain)(0.4), rtol=1e-12)


# --- captured values of a batch -----------------------------------------------------


class Holder:
    """A function with a value that is neither in a closure nor in a tree."""

    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return x * x * self.w

    def forward(self, x):
        return self(x), x

    def backward(self, x, ct):
        return (3.0 * ct * x * self.w,)


def with_vjp(f, forward, backward):
    return fdbr.custom_vjp(f, fwd=forward, bwd=backward)


def with_jvp(f, rule):
    return fdbr.custom_jvp(f, jvp=rule)


def deciding(w):
    def f(x):
        y = x * x if x > 0.4 else x
        return y * w if w > 1 else y

    def backward(x, ct):
        return (ct * (2 * x if x > 0.4 else 1.0) * (w if w > 1 else w * w),)

    return with_vjp(f, lambda x: (f(x), x), backward)


def within_another(w):
    g = with_jvp(lambda x: x * w, lambda p, t: (p[0] * w, 3.0 * t[0] * w))
    return with_vjp(lambda x: g(x) * w, lambda x: (g(x) * w, x), lambda x, ct: (ct * g(x) * w,))


def looped(w):
    def power(x):
        return fdbr.scan(lambda c, _: (c * w, None), x, None, length=3)[0]

    return with_jvp(power, lambda p, t: (power(*p), 2.0 * power(*t)))


CAPTURING = {
    "f, fwd and bwd": lambda w: with_vjp(
        lambda x: x * x * w, lambda x: (x * x * w, x), lambda x, ct: (3.0 * ct * x * w,)
    ),
    "bwd alone": lambda w: with_vjp(
        lambda x: x * x, lambda x: (x * x, x), lambda x, ct: (3.0 * ct * x * w,)
    ),
    "residuals": lambda w: with_vjp(
        lambda x: x * w, lambda x: (x * w, {"w": w, "w2": w * w}), lambda r, ct: (ct * r["w2"],)
    ),
    "f and its jvp rule": lambda w: with_jvp(
        lambda x: x * x * w, lambda p, t: (p[0] ** 2 * w, 3.0 * p[0] * t[0] * w)
    ),
    "the jvp rule alone": lambda w: with_jvp(
        lambda x: x * x, lambda p, t: (p[0] ** 2, 3.0 * p[0] * t[0] * w)
    ),
    "the value without the argument": lambda w: with_vjp(
        lambda x: ops.sin(w), lambda x: (ops.sin(w), None), lambda _, ct: (ct * ops.cos(w),)
    ),
    "an object": lambda w: with_vjp(Holder(w), Holder(w).forward, Holder(w).backward),
    "a partial function": lambda w: with_vjp(
        functools.partial(lambda w, x: w * x, w),
        lambda x: (w * x, None),
        functools.partial(lambda w, _, ct: (ct * w * w,), w),
    ),
    "decisions": deciding,
    "a custom function": within_another,
    "a loop": looped,
    "a batch": lambda w: with_jvp(
        lambda x: fdbr.vmap(lambda y: y * w * x)(np.arange(3.0)).sum(),
        lambda p, t: (3.0 * w * p[0], fdbr.vmap(lambda y: y * w * t[0])(np.arange(4.0)).sum()),
    ),
    "a gradient": lambda w: with_jvp(
        lambda x: fdbr.grad(lambda y: y**3 * w)(x),
        lambda p, t: (p[0] * w, t[0] * fdbr.grad(lambda y: y**2 * w)(p[0])),
    ),
}


def each(of, make, xs, ws):
    return np.stack([of(make(w))(x) for x, w in zip(xs, ws, strict=True)])


def derivative_along(f):
    return lambda x: fdbr.jvp(f, (x,), (1.0,))[1]


BATCHED = {
    "vmap": (lambda make: fdbr.vmap(lambda x, w: make(w)(x))(X, W), lambda f: f, X),
    "vmap of a constant": (
        lambda make: fdbr.vmap(lambda w: make(w)(0.7))(W),
        lambda f: f,
        [0.7] * 3,
    ),
    "grad under vmap": (
        lambda make: fdbr.vmap(lambda x, w: fdbr.grad(make(w))(x))(X, W),
        fdbr.grad,
        X,
    ),
    "grad of vmap": (
        lambda make: fdbr.grad(lambda xs: fdbr.vmap(lambda x, w: make(w)(x))(xs, W).sum())(X),
        fdbr.grad,
        X,
    ),
    "jvp of vmap": (
        lambda make: fdbr.jvp(
            lambda xs: fdbr.vmap(lambda x, w: make(w)(x))(xs, W), (X,), (np.ones(3),)
        )[1],
        derivative_along,
        X,
    ),
    "jvp of vmap over what is captured": (
        lambda make: fdbr.jvp(lambda x: fdbr.vmap(lambda w: make(w)(x))(W), (0.7,), (1.0,))[1],
        derivative_along,
        [0.7] * 3,
    ),
    "jit of grad of vmap": (
        lambda make: fdbr.jit(
            fdbr.grad(lambda xs, ws: fdbr.vmap(lambda x, w: make(w)(x))(xs, ws).sum())
        )(X, W),
        fdbr.grad,
        X,
    ),
}


@pytest.mark.parametrize("batched", BATCHED)
@pytest.mark.parametrize("capturing", CAPTURING)
def test_a_custom_function_may_capture_values_of_a_batch(capturing, batched):
    make = CAPTURING[capturing]
    together, of, xs = BATCHED[batched]
    assert np.allclose(together(make), each(of, make, xs, W), rtol=1e-12)


@pytest.mark.parametrize("capturing", CAPTURING)
def test_the_gradient_by_what_a_batch_shares_is_the_sum_over_what_was_captured(capturing):
    make = CAPTURING[capturing]
    found = fdbr.grad(lambda x: fdbr.vmap(lambda w: make(w)(x))(W).sum())(0.7)
    assert np.allclose(found, each(fdbr.grad, make, [0.7] * 3, W).sum(), rtol=1e-12)


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from(sorted(CAPTURING)))
def test_batches_within_batches_capture_from_either(n, m, capturing):
    make = CAPTURING[capturing]
    xs, ws = np.linspace(0.3, 0.8, n), np.linspace(0.4, 2.0, m)
    want = np.array([[make(w)(x) for w in ws] for x in xs])
    inner = fdbr.vmap(lambda x: fdbr.vmap(lambda w: make(w)(x))(ws))(xs)
    outer = fdbr.vmap(lambda w: fdbr.vmap(lambda x: make(w)(x))(xs))(ws)
    assert np.allclose(inner, want, rtol=1e-12)
    assert np.allclose(outer, want.T, rtol=1e-12)


DIFFERENTIATED = {
    "custom_vjp": lambda w: with_vjp(lambda x: x * w, lambda x: (x * w, x), lambda _, ct: (ct,)),
    "custom_jvp": lambda w: with_jvp(lambda x: x * w, lambda p, t: (p[0] * w, t[0] * w)),
}


@pytest.mark.parametrize("kind", DIFFERENTIATED)
def test_the_error_for_a_captured_value_that_is_differentiated_names_its_transformation(kind):
    make = DIFFERENTIATED[kind]

    def by_x(x):
        def by_w(w):
            return make(w)(x)

        return fdbr.grad(by_w)(3.0)

    with pytest.raises(TypeError, match=r"uses? a traced value of grad\(.*by_w\)"):
        fdbr.grad(by_x)(2.0)

    def both(x, w):
        return make(w)(x)

    with pytest.raises(TypeError, match=r"uses? a traced value of grad\(.*both\)"):
        fdbr.grad(both, (0, 1))(2.0, 3.0)
    with pytest.raises(TypeError, match=r"uses? a traced value of jvp\(.*both\)"):
        fdbr.jvp(both, (2.0, 3.0), (1.0, 1.0))
    with pytest.raises(TypeError, match=r"uses? a traced value of grad\(.*both\)"):
        fdbr.vmap(lambda x, w: fdbr.grad(both, (0, 1))(x, w))(X, W)
