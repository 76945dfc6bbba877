"""Differentially private aggregation, integer gradients, and parameters that are None."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops, random
from fdbr.testing import assert_allclose
from fdbr.train import optim

KEY = random.key(3)


def aggregated(rows, longest):
    """The mean of clipped rows in plain NumPy; rows is a list of arrays with one first axis."""
    norms = np.sqrt(sum((abs(row) ** 2).reshape(len(row), -1).sum(1) for row in rows))
    factors = np.minimum(1, longest / np.where(norms, norms, 1))
    return [np.tensordot(factors, row, 1) / len(row) for row in rows]


@given(
    st.integers(1, 9),
    st.lists(st.lists(st.integers(1, 3), max_size=2), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.5, 2.0, 1e9]),
    st.sampled_from(["float64", "float32", "complex128", "int64"]),
)
@settings(max_examples=40, deadline=None)
def test_without_noise_it_is_the_mean_of_clipped_gradients(count, shapes, longest, dtype):
    draw = np.random.default_rng(count)
    rows = [draw.normal(0, 3, (count, *shape)).astype(dtype) for shape in shapes]
    expected = aggregated([row.astype(complex if "c" in dtype else float) for row in rows], longest)
    private = optim.differentially_private_aggregate(longest, 0.0, KEY)
    grads = {"a": rows, "none": None}
    for update in (private.update, fdbr.jit(private.update)):
        updates, _ = update(grads, private.init(None))
        assert updates["none"] is None
        for found, right, row in zip(updates["a"], expected, rows, strict=True):
            assert_allclose(found, right, rtol=1e-4 if dtype == "float32" else 1e-9, atol=1e-12)
            assert np.dtype(found.dtype) == (float if dtype == "int64" else row.dtype)
    sums, _ = optim.per_example_global_norm_clip(rows, longest)
    for found, right in zip(sums, expected, strict=True):
        assert_allclose(found, right * count, rtol=1e-4 if dtype == "float32" else 1e-9, atol=1e-9)


def test_the_noise_has_the_stated_deviation_and_follows_from_the_key():
    private = optim.differentially_private_aggregate(2.0, 0.25, KEY)
    grads = {"w": np.zeros((4, 300, 200)), "b": np.zeros((4, 60000), np.float32)}
    updates, state = private.update(grads, private.init(None))
    for name in grads:
        assert_allclose(float(np.std(updates[name])), 2.0 * 0.25 / 4, rtol=0.02)
        assert abs(float(np.mean(updates[name]))) < 0.002
        assert updates[name].dtype == grads[name].dtype
    again, _ = private.update(grads, private.init(None))
    assert (again["w"] == updates["w"]).all()
    following, _ = private.update(grads, state)
    jitted, _ = fdbr.jit(private.update)(grads, state)
    assert not (following["w"] == updates["w"]).any()
    assert_allclose(jitted["w"], following["w"], rtol=1e-12)
    correlation = np.corrcoef(np.ravel(updates["w"]), np.ravel(updates["b"]))[0, 1]
    assert abs(correlation) < 0.02


def test_a_private_step_trains_in_a_chain_and_keeps_dtypes():
    params = {"w": np.ones(3, np.float16), "b": 0.5, "steps": 3}
    x, y = np.eye(3), np.array([1.0, 2.0, 3.0])

    def loss(p, x, y):
        return (ops.sum(ops.asarray(p["w"], dtype=float) * x) + p["b"] - y) ** 2

    grads = fdbr.vmap(fdbr.grad(loss), (None, 0, 0))(params, x, y)
    private = optim.differentially_private_aggregate(1.0, 0.1, KEY)
    optimizer = optim.chain(private, optim.adam(0.1))
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    new = optim.apply_updates(params, updates)
    assert new["w"].dtype == np.float16
    assert new["steps"] == 3
    assert np.shape(new["b"]) == ()
    assert new["b"] != 0.5


def test_gradients_that_are_not_of_single_examples_are_refused():
    private = optim.differentially_private_aggregate(1.0, 1.0, KEY)
    params = {"w": np.ones(3), "b": np.ones(())}
    state = private.init(params)
    with pytest.raises(ValueError, match=r"examples along the first axis of every leaf.*vmap"):
        private.update({"w": np.ones(3), "b": np.ones(())}, state, params)
    with pytest.raises(ValueError, match="must fit the parameters, but at"):
        private.update({"w": np.ones((2, 4)), "b": np.ones(2)}, state, params)
    with pytest.raises(ValueError, match="no example"):
        private.update({"w": np.ones((0, 3)), "b": np.ones(0)}, state, params)
    with pytest.raises(TypeError, match="key must be a key"):
        optim.differentially_private_aggregate(1.0, 1.0, 7)
    with pytest.raises(ValueError, match="noise_multiplier must be at least 0"):
        optim.differentially_private_aggregate(1.0, -1.0, KEY)


TRANSFORMATIONS = {
    "adam": optim.adam(0.1),
    "sgd": optim.sgd(0.1, 0.9),
    "lbfgs": optim.scale_by_lbfgs(),
    "nonlinear_cg": optim.scale_by_nonlinear_cg(),
    "clip": optim.clip_by_global_norm(0.5),
    "ema": optim.ema(0.5),
    "lion": optim.lion(0.1),
    "accumulated": optim.apply_every(2),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_integer_gradients_are_not_truncated(name):
    optimizer, params = TRANSFORMATIONS[name], np.array([1.0, 2.0, -3.0])
    found = []
    for dtype in (int, float):
        state, updates = optimizer.init(params), []
        for grads in ([3, -1, 2], [1, 1, 4], [2, 5, 1]):
            update, state = optimizer.update(np.array(grads, dtype), state, params)
            updates.append(update)
        found.append(updates)
    assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("param", [np.array([1, 2]), np.int64(3), 4, True, np.array([True])])
def test_the_advice_for_integer_parameters_works(param):
    optimizer = optim.adam(0.1)
    state = optimizer.init(param)
    grads = ops.asarray(param, dtype=float) * 0.5
    with pytest.raises(ValueError, match=r"ops\.asarray\(p, dtype=float\).*optimizer\.init") as one:
        optimizer.update(grads, state, param)
    assert "None as its gradient" in str(one.value)
    assert optimizer.update(None, state, param)[0] is None
    converted = ops.asarray(param, dtype=float)
    with pytest.raises(ValueError, match=r"parameter that is not trained.*optimizer\.init"):
        optimizer.update(grads, state, converted)
    updates, _ = optimizer.update(grads, optimizer.init(converted), converted)
    assert_allclose(optim.apply_updates(converted, updates), converted - 0.1, rtol=1e-5)
    with pytest.raises(ValueError, match=r"Only floating.*or give None"):
        optim.apply_updates(param, grads)


def test_a_parameter_that_is_none_stays_none():
    assert optim.apply_updates(None, {"a": 1.0}) is None
    assert optim.apply_updates(None, np.zeros(2)) is None
    params = {"a": None, "b": 1.0}
    assert optim.apply_updates(params, {"a": [1.0, 2.0], "b": 2.0}) == {"a": None, "b": 3.0}
    with pytest.raises(ValueError, match="structure of the parameters"):
        optim.apply_updates(params, {"a": 1.0, "c": 2.0})


def test_an_update_that_does_not_fit_is_not_cut_to_size():
    with pytest.raises(ValueError, match="complex128"):
        optim.apply_updates(np.array([1.0]), np.array([1j]))
    with pytest.raises(ValueError, match="int 1 for a parameter bool"):
        optim.apply_updates(True, 1)
