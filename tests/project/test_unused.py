"""Leaves on which a result does not depend: zeros, or no gradient at all."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from fdbr.train import optim

PARAMS = {"used": np.array([1.0, 2.0]), "other": np.ones((2, 3)), "number": 0.5, "steps": 3}
BATCH = {name: np.stack([value, value]) for name, value in PARAMS.items()}


def loss(params):
    return ops.sum(params["used"] ** 2)


@fdbr.custom_vjp
def by_rule(params):
    return loss(params)


by_rule.defvjp(
    lambda params: (loss(params), params["used"]),
    lambda used, ct: (
        PARAMS | {"used": 2 * ct * used, "other": None, "number": None, "steps": None},
    ),
)

WAYS = {
    "grad": lambda f, **o: fdbr.grad(f, **o)(PARAMS),
    "value_and_grad": lambda f, **o: fdbr.value_and_grad(f, **o)(PARAMS)[1],
    "argnums": lambda f, **o: fdbr.grad(lambda a, p: f(p), argnums=(1,), **o)(1.0, PARAMS)[0],
    "aux": lambda f, **o: fdbr.grad(lambda p: (f(p), p), has_aux=True, **o)(PARAMS)[0],
    "vjp": lambda f, **o: fdbr.vjp(f, PARAMS, **o)[1](1.0)[0],
    "jacrev": lambda f, **o: fdbr.jacrev(f, **o)(PARAMS),
    "vmap": lambda f, **o: fdbr.tree.map(lambda v: v[1], fdbr.vmap(fdbr.grad(f, **o))(BATCH)),
    "jit of grad": lambda f, **o: fdbr.jit(fdbr.grad(f, **o))(PARAMS),
    "grad of jit": lambda f, **o: [fdbr.grad(g, **o)(PARAMS) for g in [fdbr.jit(f)] * 3][-1],
    "checkpoint": lambda f, **o: fdbr.grad(fdbr.checkpoint(f), **o)(PARAMS),
    "inner": lambda f, **o: fdbr.jvp(
        lambda x: fdbr.grad(f, **o)(PARAMS | {"used": x}), (PARAMS["used"],), (PARAMS["used"],)
    )[0],
}


@pytest.mark.parametrize("f", [loss, by_rule], ids=["loss", "custom_vjp"])
@pytest.mark.parametrize("way", WAYS)
def test_a_leaf_that_is_not_used_has_zeros_or_none_as_one_says(way, f):
    zeros = WAYS[way](f)
    assert_allclose(zeros["used"], 2 * PARAMS["used"])
    assert_allclose(zeros["other"], np.zeros((2, 3)))
    assert (zeros["number"], zeros["steps"]) == (0.0, None)
    none = WAYS[way](f, unused="none")
    assert_allclose(none["used"], 2 * PARAMS["used"])
    assert (none["other"], none["number"], none["steps"]) == (None, None, None)


def test_a_function_that_uses_nothing_has_no_gradients():
    assert fdbr.grad(lambda p: 1.0, unused="none")(PARAMS) == dict.fromkeys(PARAMS)
    assert fdbr.grad(lambda x: 1.0, unused="none")(2.0) is None
    assert fdbr.vjp(lambda x: np.ones(2), 2.0, unused="none")[1](np.ones(2)) == (None,)
    assert fdbr.jacrev(lambda x: np.ones(2), unused="none")(2.0) is None
    blocks = fdbr.jacrev(lambda p: {"a": p["used"], "b": p["number"]}, unused="none")(PARAMS)
    assert blocks["b"]["used"].tolist() == [0.0, 0.0]
    assert blocks["b"]["other"] is blocks["a"]["other"] is None


def test_a_pullback_gives_none_for_what_did_not_enter_the_cotangents_given():
    _, pullback = fdbr.vjp(lambda a, b: (2 * a, 3 * b), 1.0, 1.0, unused="none")
    assert pullback((1.0, None)) == (2.0, None)
    assert pullback((1.0, 1.0)) == (2.0, 3.0)
    assert pullback((None, None)) == (None, None)


@pytest.mark.parametrize("optimizer", [optim.sgd(0.1), optim.momentum_sgd(0.1), optim.adam(0.1)])
def test_optimizers_leave_what_has_no_gradient_where_it_is(optimizer):
    params = {"a": np.ones(2), "b": np.ones(3)}
    state = optimizer.init(params)
    for step in range(4):
        used = "a" if step % 2 else "b"
        grads = fdbr.grad(lambda p, used=used: ops.sum(p[used] ** 2), unused="none")(params)
        updates, state = optimizer.update(grads, state, params)
        new = optim.apply_updates(params, updates)
        other = {"a": "b", "b": "a"}[used]
        assert new[other] is params[other]
        assert (new[used] < params[used]).all()
        params = new


@pytest.mark.parametrize("use", [fdbr.grad, fdbr.value_and_grad, fdbr.jacrev])
def test_another_word_is_refused(use):
    name = use.__name__
    with pytest.raises(ValueError, match=rf"fdbr\.{name}: unused must be 'zeros' or 'none', not 0"):
        use(loss, unused=0)
    with pytest.raises(ValueError, match=r"fdbr\.vjp: unused must be"):
        fdbr.vjp(loss, PARAMS, unused="zero")
