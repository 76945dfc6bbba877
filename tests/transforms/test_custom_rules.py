"""What the rules of custom_vjp and custom_jvp may keep, use and return."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose

X = np.array([0.3, -0.7, 1.1])
Y = np.array([1.1, 0.4, -0.9])


@fdbr.frozen
class Layer:
    weight: object
    seen: object = fdbr.buffer(default=None)
    scale: float = fdbr.static(default=3.0)


def total(f):
    return lambda *args: ops.sum(f(*args))


# --- residuals ----------------------------------------------------------------------

RESIDUALS = {
    "nothing": lambda x: None,
    "the argument": lambda x: x,
    "a shape": lambda x: (x.shape, x.dtype),
    "text, numbers and functions": lambda x: ("mode", 3, 0.5, True, np.sin, None),
    "a constant array": lambda x: np.ones(3),
    "a frozen class": lambda x: Layer(x, x, scale=2.0),
    "a mixture": lambda x: {"x": x, "shape": x.shape, "of": [x.sum(), "text"]},
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_residuals_come_back_as_they_were(name):
    keep = RESIDUALS[name]

    def bwd(residuals, ct):
        expected = keep(ct)  # a value of the same shape and dtype
        assert tree.structure(residuals) == tree.structure(expected)
        for one, other in zip(tree.leaves(residuals), tree.leaves(expected), strict=True):
            assert getattr(one, "shape", one) == getattr(other, "shape", other)
        return (2 * ct,)

    f = fdbr.custom_vjp(lambda x: x * 1.0, fwd=lambda x: (x * 1.0, keep(x)), bwd=bwd)
    rows = np.stack([X, Y])
    twos = np.full((2, 3), 2.0)
    assert_allclose(fdbr.grad(total(f))(X), twos[0])
    assert_allclose(fdbr.vmap(fdbr.grad(total(f)))(rows), twos)
    assert_allclose(fdbr.grad(total(fdbr.vmap(f)))(rows), twos)
    assert_allclose(fdbr.grad(total(fdbr.vmap(fdbr.vmap(f))))(rows[None]), twos[None])
    assert_allclose(fdbr.jvp(fdbr.vmap(f), (rows,), (rows,))[1], 2 * rows)
    assert_allclose(fdbr.grad(total(fdbr.vmap(fdbr.checkpoint(f))))(rows), twos)


def test_residuals_may_differ_in_kind_between_examples():
    fwd = lambda x: (x * 1.0, (x, "+")) if x > 0 else (x * 1.0, ())
    f = fdbr.custom_vjp(
        lambda x: x * 1.0, fwd=fwd, bwd=lambda kept, ct: (ct * kept[0] if kept else None,)
    )
    expected = np.maximum(X, 0)
    assert_allclose(fdbr.vmap(fdbr.grad(f))(X), expected)
    assert_allclose(fdbr.grad(total(fdbr.vmap(f)))(X), expected)
    grid = fdbr.grad(total(fdbr.vmap(fdbr.vmap(f))))(np.stack([X, Y]))
    assert_allclose(grid, np.maximum(np.stack([X, Y]), 0))


def test_what_all_examples_share_gets_the_sum_of_all_paths():
    def fwd(x, c):
        return (x * c, (x, 1.0)) if x > 0 else (x * c, (x, "left"))

    def bwd(kept, ct):
        x, side = kept
        return ct, None if side == "left" and x < -0.8 else ct * x

    f = fdbr.custom_vjp(lambda x, c: x * c, fwd=fwd, bwd=bwd)
    points = np.array([0.5, -0.7, 1.1, -0.9, 2.0])
    derivatives = fdbr.grad(total(fdbr.vmap(f, (0, None))), (0, 1))(points, 3.0)
    assert_allclose(derivatives, (np.ones(5), np.float64(0.5 - 0.7 + 1.1 + 2.0)))
    assert_allclose(
        fdbr.jvp(fdbr.vmap(f, (0, None)), (points, 3.0), (None, 1.0))[1][:3], points[:3]
    )


def test_a_rule_may_catch_everything():
    def fwd(x):
        try:
            return (x * 1.0, (x,)) if x > 0 else (x * 1.0, (x, x))
        except:  # noqa: E722
            return x * 1000.0, None

    def bwd(kept, ct):
        try:
            return (ct * len(kept),) if ct > 1 else (ct * 10,)
        except BaseException:
            return (ct * 1000,)

    f = fdbr.custom_vjp(lambda x: x * 1.0, fwd=fwd, bwd=bwd)
    cotangent = np.array([2.0, 2.0, 1.0])
    (slope,) = fdbr.vjp(fdbr.vmap(f), X)[1](cotangent)
    assert slope.tolist() == [2.0, 4.0, 10.0]


def test_what_all_examples_share_is_kept_once():
    shapes = []

    def bwd(kept, ct):
        x, w = kept
        shapes.append(w.shape)
        return w.T @ ct, ops.outer(ct, x)

    f = fdbr.custom_vjp(lambda x, w: w @ x, fwd=lambda x, w: (w @ x, (x, w)), bwd=bwd)
    w, rows = np.arange(6.0).reshape(2, 3), np.stack([X, Y])
    derivatives = fdbr.grad(total(fdbr.vmap(f, (0, None))), (0, 1))(rows, w)
    assert_allclose(derivatives[1], np.ones((2, 2)) @ rows)
    assert shapes == [(2, 3)]


def test_residuals_stay_when_the_argument_changes():
    by_vjp = fdbr.custom_vjp(
        lambda x: x * x, fwd=lambda x: (x * x, x), bwd=lambda x, ct: (2 * x * ct,)
    )
    by_jvp = fdbr.custom_jvp(lambda x: x * x, jvp=lambda p, t: (p[0] * p[0], 2 * p[0] * t[0]))
    for f in (by_vjp, by_jvp):
        x = np.full(5000, 3.0)
        _, pullback = fdbr.vjp(f, x)
        x[:] = 7.0
        assert (pullback(np.ones(5000))[0] == 6.0).all()


# --- used together ------------------------------------------------------------------


def test_inside_of_each_other():
    inner = fdbr.custom_jvp(np.sin, jvp=lambda p, t: (np.sin(p[0]), 3 * np.cos(p[0]) * t[0]))

    def fwd(x):
        out, pullback = fdbr.vjp(lambda x: inner(x) * 2, x)
        return out, pullback

    outer = fdbr.custom_vjp(lambda x: inner(x) * 2, fwd=fwd, bwd=lambda pb, ct: (5 * pb(ct)[0],))
    around = fdbr.custom_jvp(
        lambda x: outer(x) + inner(x),
        jvp=lambda p, t: fdbr.jvp(lambda x: 7 * outer(x) + inner(x), p, t),
    )
    assert_allclose(fdbr.grad(outer)(0.3), 30 * np.cos(0.3))
    assert_allclose(fdbr.grad(around)(0.3), 213 * np.cos(0.3))
    assert_allclose(fdbr.vmap(fdbr.grad(around))(X), 213 * np.cos(X))
    assert_allclose(fdbr.jvp(around, (0.3,), (2.0,))[1], 426 * np.cos(0.3))
    assert_allclose(fdbr.grad(fdbr.grad(inner))(0.3), -3 * np.sin(0.3))


def test_a_pullback_may_be_a_residual():
    f = fdbr.custom_vjp(
        np.tanh, fwd=lambda x: fdbr.vjp(np.tanh, x), bwd=lambda pullback, ct: pullback(4 * ct)
    )
    expected = 4 * (1 - np.tanh(X) ** 2)
    assert_allclose(fdbr.grad(total(f))(X), expected)
    assert_allclose(fdbr.jvp(f, (X,), (np.ones(3),))[1], expected)


def test_checkpoints_inside_of_rules():
    block = fdbr.checkpoint(lambda x: np.sin(np.exp(x)))
    f = fdbr.custom_vjp(
        block, fwd=lambda x: (block(x), x), bwd=lambda x, ct: fdbr.vjp(block, x)[1](ct)
    )
    plain = lambda x: np.sin(np.exp(x))
    assert_allclose(fdbr.hessian(total(f))(X), fdbr.hessian(total(plain))(X))
    assert_allclose(fdbr.vmap(fdbr.grad(f))(X), fdbr.vmap(fdbr.grad(plain))(X))


def test_a_fixed_point_by_its_own_derivative():
    """Newton's method for the square root, with the implicit function theorem as the rule."""

    @fdbr.custom_vjp
    def root(a):
        x = a
        while abs(x * x - a) > 1e-12:
            x = (x + a / x) / 2
        return x

    def bwd(x, ct):
        return (ct / (2 * x),)

    root.defvjp(lambda a: (root(a),) * 2, bwd)
    a = np.array([1.0, 2.0, 50.0])
    assert_allclose(fdbr.vmap(fdbr.grad(root))(a), 0.5 / np.sqrt(a))
    assert_allclose(fdbr.vmap(fdbr.grad(fdbr.grad(root)))(a), -0.25 * a**-1.5)
    assert_allclose(fdbr.grad(total(fdbr.vmap(root)))(a), 0.5 / np.sqrt(a))


def test_complex_functions():
    z = np.array([1 + 2j, 0.5 - 1j])
    f = fdbr.custom_vjp(lambda z: z**2, fwd=lambda z: (z**2, z), bwd=lambda z, ct: (3 * ct * z,))
    assert_allclose(fdbr.jacrev(f, holomorphic=True)(z), np.diag(3 * z))
    assert_allclose(fdbr.jacfwd(f, holomorphic=True)(z), np.diag(3 * z))


# --- errors -------------------------------------------------------------------------


def made_vjp(fwd=None, bwd=None, f=lambda d: d["x"] * 2):
    fwd = fwd or (lambda d: (d["x"] * 2, None))
    return fdbr.custom_vjp(f, fwd=fwd, bwd=bwd or (lambda _, ct: (ct,)))


def made_jvp(rule):
    return fdbr.custom_jvp(lambda d: {"y": d["x"] * 2, "n": 3}, jvp=rule)


D = {"x": X, "n": 3}
OUT = {"y": X, "n": 3}


def slope(f):
    return lambda: fdbr.grad(lambda d: ops.sum(tree.leaves(f(d))[-1]))(D)


def closing(kind):
    """A function with a rule, which uses a traced value that is no argument."""

    def use(x):
        if kind == "vjp":
            f = fdbr.custom_vjp(
                lambda y: x * y, fwd=lambda y: (x * y, None), bwd=lambda _, ct: (ct * x,)
            )
        else:
            f = fdbr.custom_jvp(lambda y: x * y, jvp=lambda p, t: (x * p[0], x * t[0]))
        return f(x)

    return use


ERRORS = {
    "no function": (
        lambda: fdbr.custom_vjp(3),
        TypeError,
        "fdbr.custom_vjp: f must be a function, not int 3",
    ),
    "no function, for jvp": (
        lambda: fdbr.custom_jvp(None),
        TypeError,
        "fdbr.custom_jvp: f must be a function, not NoneType",
    ),
    "nondiff_argnums": (
        lambda: fdbr.custom_vjp(np.sin, "x"),
        TypeError,
        "fdbr.custom_vjp: nondiff_argnums must be an integer or a sequence of integers, not 'x'",
    ),
    "no rule": (
        lambda: fdbr.grad(fdbr.custom_vjp(ops.sin))(1.0),
        TypeError,
        r"fdbr.custom_vjp: sin has no rule; give one with sin.defvjp\(fwd, bwd\)",
    ),
    "no rule, for jvp": (
        lambda: fdbr.grad(fdbr.custom_jvp(ops.sin))(1.0),
        TypeError,
        r"fdbr.custom_jvp: sin has no rule; give one with sin.defjvp\(jvp\)",
    ),
    "fwd without residuals": (
        slope(made_vjp(fwd=lambda d: d["x"])),
        TypeError,
        r"fdbr.custom_vjp: fwd of <lambda> must return a pair \(value, residuals\), not float64",
    ),
    "bwd without a tuple": (
        slope(made_vjp(bwd=lambda _, ct: ct)),
        TypeError,
        "fdbr.custom_vjp: bwd of <lambda> must return a tuple of 1 cotangents, one for each",
    ),
    "bwd with too many": (
        slope(made_vjp(bwd=lambda _, ct: (ct, ct))),
        TypeError,
        "must return a tuple of 1 cotangents, one for each argument .*, not a tuple of 2",
    ),
    "bwd with another structure": (
        slope(made_vjp(bwd=lambda _, ct: (ct,))),
        ValueError,
        "fdbr.custom_vjp: bwd of <lambda>: the cotangent of argument 0 must have the structure",
    ),
    "bwd with another shape": (
        slope(made_vjp(bwd=lambda _, ct: ({"x": ct[:1], "n": None},))),
        ValueError,
        r"bwd of <lambda>: the cotangent of argument 0 at \['x'\] must have shape \(3,\), "
        r"not float64\[1\]",
    ),
    "bwd with another dtype": (
        slope(made_vjp(bwd=lambda _, ct: ({"x": ops.astype(ct, "float32"), "n": None},))),
        TypeError,
        r"the cotangent of argument 0 at \['x'\] must have dtype float64, not float32\[3\]",
    ),
    "bwd with a cotangent of an integer": (
        slope(made_vjp(bwd=lambda _, ct: ({"x": ct, "n": 0.0},))),
        TypeError,
        r"the cotangent of argument 0 at \['n'\] must be None, for there is int 3",
    ),
    "under vmap": (
        lambda: fdbr.vmap(
            slope(made_vjp(bwd=lambda _, ct: ({"x": ct[:1], "n": None},))), axis_size=2
        )(),
        ValueError,
        r"the cotangent of argument 0 at \['x'\] must have shape \(3,\)",
    ),
    "a rule without a tangent": (
        slope(made_jvp(lambda p, t: OUT)),
        TypeError,
        r"fdbr.custom_jvp: the rule of <lambda> must return a pair \(value, tangent\), not dict",
    ),
    "a tangent of another structure": (
        slope(made_jvp(lambda p, t: (OUT, t[0]["x"]))),
        ValueError,
        "fdbr.custom_jvp: the tangent that the rule of <lambda> returned must have the structure",
    ),
    "a tangent of another shape": (
        slope(made_jvp(lambda p, t: (OUT, {"y": t[0]["x"][:1], "n": None}))),
        ValueError,
        r"the tangent that the rule of <lambda> returned at \['y'\] must have shape \(3,\)",
    ),
    "a tangent of another dtype": (
        slope(made_jvp(lambda p, t: (OUT, {"y": ops.astype(t[0]["x"], "float32"), "n": None}))),
        TypeError,
        r"returned at \['y'\] must have dtype float64, not float32\[3\]",
    ),
    "a tangent of an integer": (
        slope(made_jvp(lambda p, t: (OUT, {"y": t[0]["x"], "n": 1.0}))),
        TypeError,
        r"returned at \['n'\] must be None, for there is int 3",
    ),
    "keyword-only arguments": (
        lambda: fdbr.custom_vjp(lambda x, *, n: x)(1.0, n=2),
        TypeError,
        r"fdbr.custom_vjp: <lambda> has keyword-only arguments \['n'\]; its rules take",
    ),
    "unknown keyword arguments": (
        lambda: fdbr.custom_vjp(lambda x: x)(1.0, n=2),
        TypeError,
        "unexpected keyword argument 'n'",
    ),
}
for kind, way in itertools.product(["vjp", "jvp"], ["grad", "jvp"]):
    uses = {
        "grad": lambda f: fdbr.grad(f)(2.0),
        "jvp": lambda f: fdbr.jvp(f, (2.0,), (1.0,)),
    }
    ERRORS[f"a traced value of around, custom_{kind} under {way}"] = (
        lambda kind=kind, use=uses[way]: use(closing(kind)),
        TypeError,
        rf"fdbr.custom_{kind}\(<lambda>\): its functions use a traced value of {way}\(.*\) that is "
        "no argument, or a static one; pass it as an argument",
    )


@pytest.mark.parametrize("name", ERRORS)
def test_errors_name_function_argument_and_path(name):
    attempt, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        attempt()


def test_traced_values_of_outer_transformations_may_be_used():
    """Only of those that the rule itself serves must all be arguments."""

    def f(c, kind):
        if kind == "vjp":
            inner = fdbr.custom_vjp(
                lambda y: c * y**2, fwd=lambda y: (c * y**2, y), bwd=lambda y, ct: (3 * ct * c * y,)
            )
        else:
            inner = fdbr.custom_jvp(
                lambda y: c * y**2, jvp=lambda p, t: (c * p[0] ** 2, 3 * c * p[0] * t[0])
            )
        return fdbr.grad(inner)(2.0)

    for kind in ("vjp", "jvp"):
        assert fdbr.grad(lambda c, k=kind: f(c, k))(5.0) == 6.0
        assert fdbr.vmap(lambda c, k=kind: f(c, k))(X).tolist() == (6 * X).tolist()
