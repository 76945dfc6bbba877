"""custom_vjp and custom_jvp: functions whose derivative the user states.

Most rules here are wrong on purpose, by a factor that tells them from the true derivative.
"""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.testing import assert_allclose

X = np.array([0.3, -0.7, 1.1])
Y = np.array([1.1, 0.4, -0.9])


def product(x, y):
    return ops.sin(x) * y


def forward(x, y):
    return product(x, y), (x, {"y": y}, "kept", 3)


def backward(residuals, ct):
    x, kept, text, number = residuals
    assert text == "kept"
    assert number == 3
    return 2 * ct * ops.cos(x) * kept["y"], 2 * ct * ops.sin(x)


def push(primals, tangents):
    (x, y), (s, t) = primals, tangents
    return product(x, y), 2 * ops.cos(x) * y * s + 2 * ops.sin(x) * t


BY_VJP = fdbr.custom_vjp(product, fwd=forward, bwd=backward)
BY_JVP = fdbr.custom_jvp(product, jvp=push)
BOTH = pytest.mark.parametrize("f", [BY_VJP, BY_JVP], ids=["custom_vjp", "custom_jvp"])


def doubled(x, y):
    """What the rules say, said otherwise."""
    return 2 * product(x, y) - fdbr.stop_gradient(product(x, y))


# --- under every transformation -----------------------------------------------------


def total(f):
    return lambda *args: ops.sum(f(*args))


# First derivatives, in every way that there is to get them.
FIRST = {
    "value": lambda f: f(X, Y),
    "grad": lambda f: fdbr.grad(total(f), (0, 1))(X, Y),
    "grad by one": lambda f: fdbr.grad(lambda y: ops.sum(f(X, y)))(Y),
    "vjp": lambda f: fdbr.vjp(f, X, Y)[1](Y),
    "jvp": lambda f: fdbr.jvp(f, (X, Y), (Y, X)),
    "jvp along one": lambda f: fdbr.jvp(f, (X, Y), (None, X)),
    "linearize": lambda f: fdbr.linearize(f, X, Y)[1](Y, X),
    "jacfwd": lambda f: fdbr.jacfwd(f, (0, 1))(X, Y),
    "jacrev": lambda f: fdbr.jacrev(f, (0, 1))(X, Y),
    "vmap": lambda f: fdbr.vmap(f)(X, Y),
    "vmap over one": lambda f: fdbr.vmap(f, (None, 0))(0.5, Y),
    "vmap of grad": lambda f: fdbr.vmap(fdbr.grad(f, (0, 1)))(X, Y),
    "vmap of grad over one": lambda f: fdbr.vmap(fdbr.grad(f, (0, 1)), (None, 0))(0.5, Y),
    "vmap of jvp": lambda f: fdbr.vmap(lambda x, y: fdbr.jvp(f, (x, y), (y, x)))(X, Y),
    "vmap of jvp over tangents": lambda f: fdbr.vmap(lambda t: fdbr.jvp(f, (0.5, 2.0), (t, 1.0)))(
        X
    ),
    "vmap of jacrev": lambda f: fdbr.vmap(fdbr.jacrev(f, 1))(X, Y),
    "vmap of vmap": lambda f: fdbr.vmap(lambda x: fdbr.vmap(lambda y: f(x, y))(Y))(X),
    "vmap of vmap of grad": lambda f: fdbr.vmap(
        lambda x: fdbr.vmap(lambda y: fdbr.grad(f, (0, 1))(x, y))(Y)
    )(X),
    "grad of vmap": lambda f: fdbr.grad(total(fdbr.vmap(f)), (0, 1))(X, Y),
    "grad of vmap over one": lambda f: fdbr.grad(total(fdbr.vmap(f, (0, None))), (0, 1))(X, 0.5),
    "grad of vmap over the other": lambda f: fdbr.grad(total(fdbr.vmap(f, (None, 0))), (0, 1))(
        0.5, Y
    ),
    "grad of vmap of vmap": lambda f: fdbr.grad(
        total(fdbr.vmap(fdbr.vmap(f, (None, 0)), (0, None))), (0, 1)
    )(X, Y),
    "jvp of vmap": lambda f: fdbr.jvp(fdbr.vmap(f), (X, Y), (Y, X)),
    "jvp of vmap over one": lambda f: fdbr.jvp(fdbr.vmap(f, (0, None)), (X, 0.5), (Y, 1.0)),
    "jvp of vmap along one": lambda f: fdbr.jvp(fdbr.vmap(f, (0, None)), (X, 0.5), (None, 1.0)),
    "in a checkpoint": lambda f: fdbr.grad(total(fdbr.checkpoint(f)), (0, 1))(X, Y),
    "vmap of grad of checkpoint": lambda f: fdbr.vmap(fdbr.grad(fdbr.checkpoint(f), (0, 1)))(X, Y),
    "grad of vmap of checkpoint": lambda f: fdbr.grad(total(fdbr.vmap(fdbr.checkpoint(f))))(X, Y),
    "jvp of checkpoint": lambda f: fdbr.jvp(fdbr.checkpoint(f), (X, Y), (Y, X)),
    "used twice": lambda f: fdbr.grad(lambda x: ops.sum(f(f(x, Y), x)))(X),
    "stopped": lambda f: fdbr.grad(lambda x: ops.sum(f(fdbr.stop_gradient(x), x)))(X),
}


@BOTH
@pytest.mark.parametrize("use", FIRST)
def test_the_rule_holds_under_every_transformation(f, use):
    assert_allclose(FIRST[use](f), FIRST[use](doubled), rtol=1e-12)


# Second derivatives are those of the rule as it is written.
SECOND = {
    "grad of grad": lambda g: fdbr.grad(total(g))(X),
    "jvp of grad": lambda g: fdbr.jvp(g, (X,), (Y,)),
    "jacfwd of grad": lambda g: fdbr.jacfwd(g)(X),
    "jacrev of grad": lambda g: fdbr.jacrev(g)(X),
    "linearize grad": lambda g: fdbr.linearize(g, X)[1](Y),
    "vmap of jvp of grad": lambda g: fdbr.vmap(lambda x: fdbr.jvp(g, (x,), (x,))[1])(
        np.stack([X, Y])
    ),
    "grad of jvp of grad": lambda g: fdbr.grad(lambda x: ops.sum(fdbr.jvp(g, (x,), (Y,))[1]))(X),
    "grad of vmap of grad": lambda g: fdbr.grad(total(fdbr.vmap(g)))(np.stack([X, Y])),
    "jvp of vmap of grad": lambda g: fdbr.jvp(
        fdbr.vmap(g), (np.stack([X, Y]),), (np.stack([Y, X]),)
    ),
    "checkpoint": lambda g: fdbr.grad(total(fdbr.checkpoint(g)))(X),
}


@BOTH
@pytest.mark.parametrize("use", SECOND)
def test_derivatives_of_the_rule(f, use):
    stated = SECOND[use](fdbr.grad(lambda x: ops.sum(f(x, Y))))
    written_out = SECOND[use](lambda x: 2 * ops.cos(x) * Y)
    assert_allclose(stated, written_out, rtol=1e-11)


@given(seed=st.integers(0, 999), subset=st.sampled_from([(0,), (1,), (0, 1)]))
def test_a_true_rule_changes_nothing(seed, subset):
    rng = np.random.default_rng(seed)
    x, y, s, t = rng.normal(size=(4, 3))
    plain = lambda x, y: np.tanh(x * y) + ops.outer(x, y).sum(axis=0)
    by_vjp = fdbr.custom_vjp(
        plain,
        fwd=lambda *args: (plain(*args), args),
        bwd=lambda args, ct: fdbr.vjp(plain, *args)[1](ct),
    )
    by_jvp = fdbr.custom_jvp(plain, jvp=lambda p, t: fdbr.jvp(plain, p, t))
    for f in (by_vjp, by_jvp):
        tangents = tuple(v if i in subset else None for i, v in enumerate((s, t)))
        assert_allclose(fdbr.jvp(f, (x, y), tangents), fdbr.jvp(plain, (x, y), tangents), 1e-9)
        second = fdbr.hessian(total(f), subset)(x, y)
        assert_allclose(second, fdbr.hessian(total(plain), subset)(x, y), 1e-9, 1e-9)


# --- when which function runs -------------------------------------------------------


def test_outside_of_derivatives_the_function_itself_runs():
    runs = []
    f = fdbr.custom_vjp(
        lambda x: runs.append("f") or x * 1.0,
        fwd=lambda x: (runs.append("fwd") or x * 1.0, None),
        bwd=lambda _, ct: (runs.append("bwd") or ct,),
    )
    f(2.0)
    fdbr.vmap(f)(X)
    assert runs == ["f", "f"]
    runs.clear()
    _, pullback = fdbr.vjp(f, 2.0)
    assert runs == ["fwd"]
    pullback(1.0), pullback(2.0)
    assert runs == ["fwd", "bwd", "bwd"]


def test_a_rule_that_is_not_needed_may_be_missing():
    f = fdbr.custom_vjp(lambda x: x * 2)
    assert f(3.0) == 6.0
    assert fdbr.grad(lambda x: x * f(3.0))(1.0) == 6.0


def test_decorators_return_what_was_decorated():
    @fdbr.custom_vjp
    def halved(x):
        """Half of it."""
        return x / 2

    @functools.partial(fdbr.custom_jvp, nondiff_argnums=(1,))
    def power(x, n):
        return x**n

    assert halved.defvjp(lambda x: (x / 2, None), lambda _, ct: (ct,)) is halved
    assert power.defjvp(lambda n, p, t: (p[0] ** n, -t[0])) is power
    assert (halved.__name__, halved.__doc__) == ("halved", "Half of it.")
    assert fdbr.grad(halved)(3.0) == 1.0
    assert fdbr.grad(power)(3.0, 2) == -1.0


def test_a_rule_may_call_its_own_function():
    @fdbr.custom_jvp
    def exponential(x):
        return np.exp(x)

    exponential.defjvp(lambda p, t: (exponential(p[0]), exponential(p[0]) * t[0]))
    f = exponential
    for _ in range(4):
        f = fdbr.grad(f)
    assert np.isclose(f(0.3), np.exp(0.3))
    assert_allclose(fdbr.vmap(f)(X), np.exp(X))


# --- arguments ----------------------------------------------------------------------

STATIC = {
    "vjp": lambda: fdbr.custom_vjp(
        lambda g, x, n: g(x) ** n,
        nondiff_argnums=(0, 2),
        fwd=lambda g, x, n: (g(x) ** n, x),
        bwd=lambda g, n, x, ct: (ct * 10 * n * g(x) ** (n - 1),),
    ),
    "jvp": lambda: fdbr.custom_jvp(
        lambda g, x, n: g(x) ** n,
        nondiff_argnums=[0, -1],
        jvp=lambda g, n, p, t: (g(p[0]) ** n, t[0] * 10 * n * g(p[0]) ** (n - 1)),
    ),
}


@pytest.mark.parametrize("kind", STATIC)
def test_static_arguments_may_be_anything(kind):
    f = STATIC[kind]()
    expected = 30 * np.sin(X) ** 2
    assert_allclose(fdbr.grad(lambda x: ops.sum(f(np.sin, x, 3)))(X), expected)
    assert_allclose(fdbr.vmap(fdbr.grad(lambda x: f(np.sin, x, 3)))(X), expected)
    assert_allclose(
        fdbr.grad(lambda x: ops.sum(fdbr.vmap(lambda x: f(np.sin, x, 3))(x)))(X), expected
    )
    assert_allclose(fdbr.jvp(lambda x: f(np.sin, x, 3), (X,), (np.ones(3),))[1], expected)
    assert_allclose(fdbr.grad(lambda x: f(n=2, g=np.cos, x=x))(0.3), 20 * np.cos(0.3))


def test_static_arguments_must_be_given():
    bwd = lambda n, _, ct: (ct * n,)
    f = fdbr.custom_vjp(lambda x, n=2: x * n, (1,), fwd=lambda x, n: (x * n, None), bwd=bwd)
    assert fdbr.grad(f)(1.5) == 2.0  # the default
    assert fdbr.grad(f)(1.5, n=3) == 3.0
    g = fdbr.custom_vjp(lambda *args: args[0], (1,), fwd=f.fwd, bwd=bwd)
    with pytest.raises(TypeError, match=r"nondiff_argnums=\(1,\), but was called with 1 argument"):
        g(1.0)


def test_a_single_static_argument():
    f = fdbr.custom_vjp(
        lambda x, n: x * n, 1, fwd=lambda x, n: (x * n, None), bwd=lambda n, _, ct: (ct + n,)
    )
    assert fdbr.grad(f)(2.0, 3) == 4.0


@fdbr.frozen
class Layer:
    weight: object
    seen: object = fdbr.buffer(default=None)
    scale: float = fdbr.static(default=3.0)

    @fdbr.custom_vjp
    def apply(self, x):
        return self.weight @ x

    @fdbr.custom_jvp
    def other(self, x):
        return self.weight @ x

    def __call__(self, x):
        return self.apply(x) + self.other(x)


Layer.apply.defvjp(
    lambda self, x: (self.weight @ x, (self, x)),
    lambda kept, ct: (
        tree.replace(kept[0], weight=kept[0].scale * ops.outer(ct, kept[1]), seen=None),
        kept[0].weight.T @ ct * kept[0].scale,
    ),
)
Layer.other.defjvp(
    lambda p, t: (
        p[0].weight @ p[1],
        p[0].scale * ((t[0].weight @ p[1]) + p[0].weight @ t[1]),
    )
)


def test_methods_of_frozen_classes():
    layer = Layer(np.arange(6.0).reshape(2, 3), seen=np.ones(2))
    loss = lambda layer, x: ops.sum(layer(x))
    slope, by_x = fdbr.grad(loss, (0, 1))(layer, X)
    assert isinstance(slope, Layer)
    assert slope.seen is None
    assert_allclose(slope.weight, 6 * np.stack([X, X]))
    assert_allclose(by_x, 6 * layer.weight.sum(axis=0))
    rows = np.stack([X, Y])
    each = fdbr.vmap(fdbr.grad(loss), (None, 0))(layer, rows)
    assert_allclose(each.weight, 6 * np.stack([np.stack([X, X]), np.stack([Y, Y])]))
    of_batch = fdbr.grad(lambda layer: ops.sum(fdbr.vmap(layer)(rows)))(layer)
    assert_allclose(of_batch.weight, each.weight.sum(axis=0))
    tangent = tree.replace(layer, weight=np.ones((2, 3)), seen=None)
    out, push = fdbr.jvp(lambda layer: layer(X), (layer,), (tangent,))
    assert_allclose(out, 2 * layer.weight @ X)
    assert_allclose(push, np.full(2, 6 * X.sum()))


# A tree with everything in it: integers, buffers, nothing.
TREE = {"x": X, "n": 4, "layer": Layer(np.ones(2), np.zeros(2)), "none": None}


def of_tree(d, flag):
    return {"y": d["x"] * d["n"], "k": d["n"] + 1, "w": (d["layer"].weight, flag), "none": None}


def of_tree_backward(residuals, ct):
    assert ct["k"] is None
    assert ct["none"] is None
    assert ct["w"][1] is None
    layer = Layer(ct["w"][0] * 7, None)
    return {"x": ct["y"] * 5, "n": None, "layer": layer, "none": None}, None


def of_tree_push(primals, tangents):
    (d, flag), (t, none) = primals, tangents
    assert none is None
    assert t["n"] is None
    w = (t["layer"].weight * 7, None)
    return of_tree(d, flag), {"y": t["x"] * 5, "k": None, "w": w, "none": None}


TREE_VJP = fdbr.custom_vjp(
    of_tree, fwd=lambda d, flag: (of_tree(d, flag), None), bwd=of_tree_backward
)
TREE_JVP = fdbr.custom_jvp(of_tree, jvp=of_tree_push)


@pytest.mark.parametrize("f", [TREE_VJP, TREE_JVP], ids=["custom_vjp", "custom_jvp"])
def test_trees_with_leaves_that_are_not_differentiated(f):
    loss = lambda d: ops.sum(f(d, True)["y"]) + ops.sum(f(d, True)["w"][0])
    slope = fdbr.grad(loss)(TREE)
    assert slope["x"].tolist() == [5.0] * 3
    assert slope["layer"].weight.tolist() == [7.0] * 2
    assert slope["n"] is slope["none"] is slope["layer"].seen is None

    tangent = {"x": Y, "n": None, "layer": Layer(np.ones(2), None), "none": None}
    out, push = fdbr.jvp(lambda d: f(d, True), (TREE,), (tangent,))
    assert out["k"] == 5
    assert out["w"][1] is True
    assert push["k"] is push["w"][1] is None
    assert_allclose(push["y"], 5 * Y)
    assert push["w"][0].tolist() == [7.0] * 2

    batch = tree.map(lambda leaf: np.stack([leaf, leaf]), TREE)
    flags = np.array([True, False])
    each = fdbr.vmap(fdbr.grad(lambda d, flag: ops.sum(f(d, flag)["y"])))(batch, flags)
    assert each["x"].tolist() == [[5.0] * 3] * 2
    whole = lambda d: ops.sum(fdbr.vmap(f)(d, flags)["y"])
    assert fdbr.grad(whole)(batch)["x"].tolist() == [[5.0] * 3] * 2
    t = {"x": batch["x"], "n": None, "layer": None, "none": None}
    t["layer"] = Layer(np.ones((2, 2)), None)
    _, push = fdbr.jvp(lambda d: fdbr.vmap(f)(d, flags), (batch,), (t,))
    assert_allclose(push["y"], 5 * batch["x"])


@pytest.mark.parametrize("used", [p for p in itertools.product([0, 1], repeat=2) if any(p)])
def test_cotangents_of_results_that_nobody_used_are_zeros(used):
    seen = []

    def bwd(_, ct):
        seen.append(ct)
        return (2 * ct[0] + 3 * ct[1].sum(),)

    f = fdbr.custom_vjp(
        lambda x: (x * 1.0, np.ones(2) * x),
        fwd=lambda x: ((x * 1.0, np.ones(2) * x), None),
        bwd=bwd,
    )
    loss = lambda x: sum((ops.sum(y) * u for y, u in zip(f(x), used, strict=True) if u), 0.0)
    assert fdbr.grad(loss)(1.0) == 2 * used[0] + 6 * used[1]
    assert seen[0][1].tolist() == [used[1]] * 2


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_none_is_a_cotangent_of_zero(which):
    bwd = lambda _, ct: tuple(None if i in which else ct for i in range(2))
    f = fdbr.custom_vjp(lambda x, y: x * y, fwd=lambda x, y: (x * y, None), bwd=bwd)
    expected = [0.0 if i in which else 1.0 for i in range(2)]
    assert [*fdbr.grad(f, (0, 1))(2.0, 3.0)] == expected
    assert fdbr.jvp(f, (2.0, 3.0), (1.0, 1.0))[1] == sum(expected)
    each = fdbr.vmap(fdbr.grad(f, (0, 1)))(X, Y)
    assert_allclose(each, tuple(e * np.ones(3) for e in expected))
    whole = fdbr.grad(total(fdbr.vmap(f, (0, None))), (0, 1))(X, 2.0)
    assert_allclose(whole, (expected[0] * np.ones(3), np.float64(3 * expected[1])))
    assert fdbr.grad(fdbr.grad(f))(2.0, 3.0) == 0.0


# --- on any value ------------------------------------------------------------------


def test_dtypes_stay():
    for f in (BY_VJP, BY_JVP):
        x, y = X.astype("float32"), Y.astype("float32")
        out, push = fdbr.jvp(f, (x, y), (y, x))
        derivatives = fdbr.grad(total(f), (0, 1))(x, y)
        assert {leaf.dtype for leaf in (out, push, *derivatives)} == {np.dtype("float32")}


@BOTH
def test_functions_of_modules_other_than_numpy(f, xp, to_numpy):
    x, y = xp.asarray(X), xp.asarray(Y)
    derivatives = fdbr.grad(total(f), (0, 1))(x, y)
    assert type(derivatives[0]) is type(x)
    assert_allclose(to_numpy(derivatives[0]), 2 * np.cos(X) * Y)
    each = fdbr.vmap(fdbr.grad(lambda x, y: f(x, y) if x > 0 else x * y))(x, y)
    assert_allclose(to_numpy(each), np.where(X > 0, 2 * np.cos(X) * Y, Y))
    whole = fdbr.grad(total(fdbr.vmap(f, (0, None))), (0, 1))(x, y[0])
    assert_allclose(to_numpy(whole[1]), 2 * np.sin(X).sum())


def test_a_traced_static_argument_is_an_error():
    f = STATIC["vjp"]()
    with pytest.raises(TypeError, match="is no argument, or a static one"):
        fdbr.grad(lambda x: f(lambda y: x * y, x, 2))(1.0)


def test_a_value_that_escaped_is_an_error():
    kept = []
    fdbr.grad(lambda x: kept.append(x) or x)(1.0)
    with pytest.raises(
        fdbr.EscapedTracerError, match=r"fdbr.custom_vjp\(product\): a traced value of"
    ):
        BY_VJP(kept[0], 1.0)
