"""Optimizers and gradient transformations."""

import numpy as np
import pytest
import shadow
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import nn, random
from fdbr.testing import assert_allclose
from fdbr.train import optim

ALL = {
    "sgd": optim.sgd(0.1),
    "momentum": optim.momentum_sgd(0.1),
    "nesterov": optim.momentum_sgd(0.1, nesterov=True),
    "adam": optim.adam(0.1),
    "scale": optim.scale(-0.1),
    "trace": optim.trace(0.9),
    "scale_by_adam": optim.scale_by_adam(),
    "empty chain": optim.chain(),
}
STATEFUL = ["momentum", "nesterov", "adam"]
SEEDS = st.integers(0, 1000)


def arrays_of(seed, dtype="float64"):
    keys = random.split(random.key(seed), 2)
    return {"w": random.normal(keys[0], (3, 2), dtype), "b": [random.normal(keys[1], (2,), dtype)]}


def run(optimizer, params, gradients):
    state = optimizer.init(params)
    for grads in gradients:
        updates, state = optimizer.update(grads, state, params)
        params = optim.apply_updates(params, updates)
    return params, state


# --- what the formulas say ----------------------------------------------------------


@given(SEEDS)
def test_sgd_goes_against_the_gradient(seed):
    params, grads = arrays_of(seed), arrays_of(seed + 1)
    new, state = run(optim.sgd(0.1), params, [grads])
    np.testing.assert_allclose(new["w"], params["w"] - 0.1 * grads["w"], rtol=1e-14)
    assert state.step == 1


def reference_momentum(p, gradients, rate, decay, nesterov):
    velocity = np.zeros_like(p)
    for g in gradients:
        velocity = decay * velocity + g
        p = p - rate * (g + decay * velocity if nesterov else velocity)
    return p


@pytest.mark.parametrize("nesterov", [False, True])
@given(SEEDS)
@settings(max_examples=10)
def test_momentum_follows_its_formula(nesterov, seed):
    params, gradients = arrays_of(seed), [arrays_of(seed + i) for i in range(1, 6)]
    new, _ = run(optim.momentum_sgd(0.1, 0.8, nesterov), params, gradients)
    expected = reference_momentum(params["w"], [g["w"] for g in gradients], 0.1, 0.8, nesterov)
    np.testing.assert_allclose(new["w"], expected, rtol=1e-12, atol=1e-13)


def reference_adam(p, gradients, rate=0.1, b1=0.9, b2=0.999, eps=1e-8):
    mu = nu = np.zeros_like(p)
    for t, g in enumerate(gradients, 1):
        mu = b1 * mu + (1 - b1) * g
        nu = b2 * nu + (1 - b2) * g**2
        p = p - rate * (mu / (1 - b1**t)) / (np.sqrt(nu / (1 - b2**t)) + eps)
    return p


@given(SEEDS)
@settings(max_examples=10)
def test_adam_follows_its_formula(seed):
    params, gradients = arrays_of(seed), [arrays_of(seed + i) for i in range(1, 6)]
    new, state = run(optim.adam(0.1), params, gradients)
    expected = reference_adam(params["w"], [g["w"] for g in gradients])
    np.testing.assert_allclose(new["w"], expected, rtol=1e-12, atol=1e-13)
    assert state[0].step == state[1].step == 5


def test_a_schedule_is_given_the_count_of_updates_before():
    seen = []

    def schedule(step):
        seen.append(step)
        return np.float64(1.0 / (1 + step))

    params = np.zeros(2, "float32")
    new, state = run(optim.sgd(schedule), params, [np.ones(2, "float32")] * 3)
    assert seen == [0, 1, 2]
    assert state.step == 3
    assert new.dtype == np.float32
    np.testing.assert_allclose(new, -(1 + 1 / 2 + 1 / 3), rtol=1e-6)


def test_a_chain_is_its_parts_one_after_the_other():
    params, gradients = arrays_of(0), [arrays_of(i) for i in range(1, 4)]
    parts = optim.chain(optim.trace(0.9), optim.chain(optim.scale(0.5), optim.scale(-0.2)))
    ours, state = run(parts, params, gradients)
    theirs, _ = run(optim.momentum_sgd(0.1), params, gradients)
    np.testing.assert_allclose(ours["w"], theirs["w"], rtol=1e-14)
    assert len(state) == 2


def test_an_empty_chain_hands_the_gradient_on():
    grads = arrays_of(1)
    updates, state = optim.chain().update(grads, (), arrays_of(0))
    assert updates is grads
    assert state == ()


# --- what holds for all of them -----------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_parameters_updates_and_states_keep_the_dtype_of_their_parameter(name, dtype):
    params = arrays_of(0, dtype)
    state = ALL[name].init(params)
    for i in range(3):
        updates, state = ALL[name].update(arrays_of(i, dtype), state, params)
        params = optim.apply_updates(params, updates)
    for leaf in fdbr.tree.leaves((params, updates, state)):
        assert isinstance(leaf, int) or leaf.dtype == dtype


@pytest.mark.parametrize("name", ALL)
def test_updates_and_states_are_read_only_and_arguments_are_untouched(name):
    params, grads = (fdbr.tree.map(np.array, arrays_of(i)) for i in (0, 1))
    before = fdbr.tree.map(np.copy, (params, grads))
    state = ALL[name].init(params)
    kept = fdbr.tree.map(np.copy, state)
    updates, new_state = ALL[name].update(grads, state, params)
    new = optim.apply_updates(params, updates)
    for old, now in zip(*map(fdbr.tree.leaves, (before, (params, grads))), strict=True):
        np.testing.assert_array_equal(old, now)
        assert now.flags.writeable
    for old, now in zip(*map(fdbr.tree.leaves, (kept, state)), strict=True):
        np.testing.assert_array_equal(old, now)
    handed_out = (state, new_state, new, updates if name != "empty chain" else ())
    for leaf in fdbr.tree.leaves(handed_out):
        assert isinstance(leaf, int) or not leaf.flags.writeable


@pytest.mark.parametrize("name", ALL)
def test_what_has_no_gradient_is_passed_by(name):
    params = {"w": np.ones(2), "steps": np.arange(3), "frozen": np.ones(1), "none": None}
    grads = {"w": np.ones(2), "steps": None, "frozen": None, "none": None}
    state = ALL[name].init(params)
    for _ in range(2):
        updates, state = ALL[name].update(grads, state, params)
        assert updates["steps"] is updates["frozen"] is None
    new = optim.apply_updates(params, updates)
    assert new["steps"] is params["steps"]
    assert new["frozen"] is params["frozen"]
    assert new["none"] is None


@pytest.mark.parametrize("name", ALL)
def test_a_bare_array_is_a_tree_of_parameters(name):
    updates, _ = ALL[name].update(np.ones(3), ALL[name].init(np.zeros(3)), np.zeros(3))
    assert updates.shape == (3,)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_are_parameters(name, shape):
    params = np.ones(shape, "float32")
    updates, _ = ALL[name].update(params, ALL[name].init(params), params)
    new = optim.apply_updates(params, updates)
    assert new.shape == shape
    assert new.dtype == np.float32


@pytest.mark.parametrize("name", ALL)
def test_python_numbers_are_parameters(name):
    updates, _ = ALL[name].update(2.0, ALL[name].init(1.0), 1.0)
    assert isinstance(optim.apply_updates(1.0, updates), float)


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam"])
def test_all_of_them_find_the_minimum_of_a_bowl(name):
    params = np.array([1.0, -2.0])
    params, _ = run_on(ALL[name], params, lambda p: p, 300)
    assert abs(params).max() < 0.05


def run_on(optimizer, params, gradient, steps):
    state = optimizer.init(params)
    for _ in range(steps):
        updates, state = optimizer.update(gradient(params), state, params)
        params = optim.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize("name", ["sgd", "momentum", "nesterov", "adam"])
def test_one_can_differentiate_through_an_update(name):
    optimizer = ALL[name]

    def after_two_steps(start):
        params, _ = run_on(optimizer, start, fdbr.grad(lambda p: (p**4).sum()), 2)
        return (params**2).sum()

    start = np.array([0.6, -0.4])
    eps = 1e-6
    numerical = [
        (after_two_steps(start + d) - after_two_steps(start - d)) / (2 * eps)
        for d in eps * np.eye(2)
    ]
    np.testing.assert_allclose(fdbr.grad(after_two_steps)(start), numerical, rtol=1e-5)


def test_one_can_differentiate_with_respect_to_the_learning_rate():
    def loss(rate):
        params, _ = run_on(optim.sgd(rate), np.array([1.0, 2.0]), lambda p: p, 1)
        return (params**2).sum()

    assert fdbr.grad(loss)(0.25) == pytest.approx(-2 * 0.75 * 5)


def test_states_print_well():
    params = nn.Linear.init(random.key(0), 784, 100)
    adam, rate = optim.adam().init(params)
    assert repr(adam) == (
        "AdamState(step=0, mu=Linear(weight=float32[100,784], bias=float32[100]), "
        "nu=Linear(weight=float32[100,784], bias=float32[100]))"
    )
    assert repr(rate) == "LearningRateState(step=0)"


def test_optimizers_are_frozen():
    with pytest.raises(fdbr.tree.FrozenError):
        optim.sgd(0.1).init = None


# --- what does not fit --------------------------------------------------------------


def layers(width=3, dtype="float32"):
    return nn.Sequential(nn.Linear.init(random.key(0), 2, width, dtype=dtype))


@pytest.mark.parametrize("name", [name for name in ALL if name != "empty chain"])
def test_a_gradient_of_another_shape_is_named_by_its_path(name):
    params = layers()
    with pytest.raises(ValueError, match=r"layers\[0\]\.weight .*float32\[4,2\].*float32\[3,2\]"):
        ALL[name].update(layers(4), ALL[name].init(params), params)


@pytest.mark.parametrize("name", [name for name in ALL if name != "empty chain"])
def test_a_gradient_of_another_dtype_is_named_by_its_path(name):
    params = layers()
    with pytest.raises(ValueError, match=r"layers\[0\]\.weight .*float64\[3,2\].*float32\[3,2\]"):
        ALL[name].update(layers(dtype="float64"), ALL[name].init(params), params)


@pytest.mark.parametrize("name", [name for name in ALL if name != "empty chain"])
def test_a_gradient_of_another_structure_is_named_by_its_path(name):
    params = {"a": np.ones(2), "b": np.ones(2)}
    with pytest.raises(ValueError, match=r"\['c'\]"):
        ALL[name].update({"a": np.ones(2), "c": np.ones(2)}, ALL[name].init(params), params)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_state_of_other_parameters_is_named_by_its_path(name):
    state = ALL[name].init(layers(4))
    message = r"layers\[0\]\.weight .*float32\[4,2\].*float32\[3,2\].*optimizer\.init\(params\)"
    with pytest.raises(ValueError, match=message):
        ALL[name].update(layers(), state, layers())


@pytest.mark.parametrize("name", STATEFUL)
def test_a_state_of_another_structure_is_told_what_to_do(name):
    state = ALL[name].init([np.ones(2)])
    with pytest.raises(ValueError, match=r"structure of the parameters.*optimizer\.init\(params\)"):
        ALL[name].update({"a": np.ones(2)}, state, {"a": np.ones(2)})


def test_a_state_that_has_nothing_for_a_gradient_is_named():
    state = optim.trace(0.9).init({"a": np.arange(2)})
    with pytest.raises(ValueError, match=r"\['a'\] there is NoneType for a parameter float64\[2\]"):
        optim.trace(0.9).update({"a": np.ones(2)}, state, {"a": np.ones(2)})


def test_a_state_of_another_optimizer_is_refused():
    params = layers()
    with pytest.raises(ValueError, match="sgd: the state must be LearningRateState, got tuple"):
        optim.sgd(0.1).update(params, optim.adam().init(params), params)
    with pytest.raises(ValueError, match="chain: the state must be a tuple of 2 states"):
        optim.adam().update(params, optim.sgd(0.1).init(params), params)
    with pytest.raises(ValueError, match="scale_by_adam: the state must be AdamState"):
        optim.adam().update(params, optim.momentum_sgd(0.1).init(params), params)


def test_updates_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"apply_updates: .* at \['a'\] .*float64\[3\].*\[2\]"):
        optim.apply_updates({"a": np.ones(2)}, {"a": np.ones(3)})
    with pytest.raises(ValueError, match=r"apply_updates: .* at \['a'\]"):
        optim.apply_updates({"a": np.ones((2, 1))}, {"a": np.ones(3)})
    with pytest.raises(ValueError, match=r"updates must have the structure .* \['b'\]"):
        optim.apply_updates({"a": np.ones(2)}, {"b": np.ones(2)})
    for steps in (3, np.arange(2)):
        with pytest.raises(ValueError, match="the root"):
            optim.apply_updates(steps, 0.5)


def test_an_update_of_another_dtype_does_not_change_that_of_the_parameter():
    new = optim.apply_updates(np.ones(2, "float32"), np.ones(2, "float64"))
    assert new.dtype == np.float32


@pytest.mark.parametrize("make", [optim.sgd, optim.momentum_sgd, optim.adam])
def test_bad_learning_rates_are_refused(make):
    for rate in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="learning rate must be at least 0"):
            make(rate)
    with pytest.raises(TypeError, match="learning rate must be a number"):
        make("fast")


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (optim.trace, {"decay": 1.0}, r"decay must lie in \[0, 1\)"),
        (optim.adam, {"b1": -0.1}, r"b1 must lie in \[0, 1\)"),
        (optim.adam, {"b2": 1.0}, r"b2 must lie in \[0, 1\)"),
        (optim.adam, {"eps": 0.0}, "eps must be positive"),
    ],
)
def test_bad_decays_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_chain_of_something_else_is_refused():
    with pytest.raises(TypeError, match="transformation 1 is a float, no Optimizer"):
        optim.chain(optim.scale(1.0), 0.5)


# --- on every array module ----------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_arrays_of_every_module_are_parameters(name, xp, to_numpy):
    params = {"w": xp.asarray(np.ones((2, 3), "float32")), "b": xp.asarray(np.float32(1))}
    grads = {"w": xp.asarray(np.full((2, 3), 0.5, "float32")), "b": xp.asarray(np.float32(2))}
    new, state = run(ALL[name], params, [grads, grads])
    expected, _ = run(ALL[name], fdbr.device_get(params), [fdbr.device_get(grads)] * 2)
    for leaf in fdbr.tree.leaves((new, state)):
        assert isinstance(leaf, int | np.generic) or type(leaf) is type(params["w"])
    np.testing.assert_allclose(to_numpy(new["w"]), expected["w"], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(new["b"]), expected["b"], rtol=1e-6)


# --- on a GPU ---------------------------------------------------------------------------


OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1),
    "momentum": lambda: optim.momentum_sgd(0.1, nesterov=True),
    "adam": lambda: optim.adam(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_on_every_array_module_are_those_of_numpy(xp, to_numpy, name, dtype):
    def steps(make):
        optimizer = OPTIMIZERS[name]()
        params = {"w": make(np.linspace(-1, 1, 6, dtype=dtype).reshape(2, 3)), "n": None}
        state = optimizer.init(params)
        for _ in range(3):
            grads = {"w": params["w"] ** 2 + params["w"], "n": None}
            updates, state = optimizer.update(grads, state, params)
            params = optim.apply_updates(params, updates)
        return params["w"]

    found, expected = to_numpy(steps(xp.asarray)), steps(np.array)
    assert found.dtype == expected.dtype
    assert_allclose(found, expected)


def test_a_step_of_adam_launches_three_kernels_a_leaf_and_waits_for_none():
    if not hasattr(shadow.module, "ElementwiseKernel"):
        pytest.skip("there is no C++ compiler to compile kernels for the host")
    optimizer = optim.adam(0.1)
    params = [shadow.asarray(np.ones(3)) for _ in range(4)]
    grads, state = params, optimizer.init(params)
    optim.apply_updates(params, optimizer.update(grads, state, params)[0])
    with shadow.counting() as tally:
        updates, state = optimizer.update(grads, state, params)
        optim.apply_updates(params, updates)
    assert tally.waits == 0
    assert tally.launches == 3 * len(params)


def test_leaves_on_different_devices_are_trained_where_they_lie(monkeypatch):
    monkeypatch.setattr(fdbr.libraries, "accelerator", lambda: shadow.module)
    params = [fdbr.device_put(np.ones(3), number) for number in (0, 1)]
    for make in OPTIMIZERS.values():
        optimizer = make()
        updates, state = optimizer.update(params, optimizer.init(params), params)
        new = optim.apply_updates(params, updates)
        for tree in (updates, new):
            assert [leaf.device.id for leaf in tree] == [0, 1]
        assert {leaf.device.id for leaf in fdbr.tree.leaves(state) if hasattr(leaf, "device")} <= {
            0,
            1,
        }
