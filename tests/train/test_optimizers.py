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
    assert state[1] == optim.EmptyState()


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
    assert state[0].count == 5


def test_a_schedule_is_given_the_count_of_updates_before():
    seen = []

    def schedule(step):
        seen.append(step)
        return np.float64(1.0 / (1 + step))

    params = np.zeros(2, "float32")
    new, state = run(optim.sgd(schedule), params, [np.ones(2, "float32")] * 3)
    assert seen == [0, 1, 2]
    assert state[1].count == 3
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
    adam, rate = optim.adam(0.1).init(params)
    assert repr(adam) == (
        "ScaleByAdamState(count=0, mu=Linear(weight=float32[100,784], bias=float32[100]), "
        "nu=Linear(weight=float32[100,784], bias=float32[100]))"
    )
    assert repr(rate) == "EmptyState()"


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
    with pytest.raises(
        ValueError, match=r"at \['a'\] has a gradient, but the state \(trace\) has nothing for it"
    ):
        optim.trace(0.9).update({"a": np.ones(2)}, state, {"a": np.ones(2)})


def test_a_state_of_another_optimizer_is_refused():
    params = layers()
    with pytest.raises(ValueError, match="scale: the state must be EmptyState, got tuple"):
        optim.scale(0.1).update(params, optim.adam(0.1).init(params), params)
    with pytest.raises(ValueError, match="chain: the state must be a tuple of 2 states"):
        optim.adam(0.1).update(params, optim.scale(0.1).init(params), params)
    with pytest.raises(ValueError, match="scale_by_adam: the state must be ScaleByAdamState"):
        optim.adam(0.1).update(params, optim.momentum_sgd(0.1).init(params), params)


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
        (optim.scale_by_adam, {"b1": -0.1}, r"b1 must lie in \[0, 1\)"),
        (optim.scale_by_adam, {"b2": 1.0}, r"b2 must lie in \[0, 1\)"),
        (optim.scale_by_adam, {"eps": -1.0}, "eps must be at least 0"),
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
    monkeypatch.setattr(fdbr.core.devices, "accelerator", lambda: shadow.module)
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


# --- counts, schedules and traces ---------------------------------------------------


SCHEDULES = {
    "a number": 0.1,
    "a scalar": np.float64(0.1),
    "an array of no axes": np.asarray(0.1, "float32"),
    "a power of the count": lambda count: 0.1 * 0.9**count,
    "a choice by the count": lambda count: fdbr.ops.where(count < 3, 0.1, 0.2),
    "NumPy's functions of the count": lambda count: 0.1 * np.minimum(1.0, count / 10),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_jitted_step_with_a_schedule_is_traced_once(name):
    optimizer = optim.adam(SCHEDULES[name])

    def step(params, state):
        updates, state = optimizer.update(params, state, params)
        return optim.apply_updates(params, updates), state

    jitted = fdbr.jit(step)
    params = {"w": np.ones(4, "float32")}
    ours = theirs = params, optimizer.init(params)
    for _ in range(6):
        ours, theirs = jitted(*ours), step(*theirs)
        assert ours[0]["w"].dtype == np.float32
        assert_allclose(ours, theirs, rtol=1e-6)
    assert type(ours[1][0].count) is int
    assert len(jitted.report().traces) == 1


@pytest.mark.parametrize("count", [np.int32(3), np.asarray(3), np.zeros((), "int32")])
def test_counts_may_be_arrays(count):
    optimizer = optim.adam(lambda count: 0.1 / (1 + count))
    params = np.ones(3, "float32")
    first, second = optimizer.init(params)
    state = optim.ScaleByAdamState(count, first.mu, first.nu), type(second)(count)
    plain = optim.ScaleByAdamState(int(count), first.mu, first.nu), type(second)(int(count))
    updates, state = optimizer.update(params, state, params)
    assert updates.dtype == np.float32
    assert_allclose(updates, optimizer.update(params, plain, params)[0], rtol=1e-6)
    assert state[0].count == state[1].count == count + 1


# --- rules of one's own -------------------------------------------------------------


def averaged(seen=None):
    """A rule that makes the mean of all gradients the update."""

    def update(g, own, p, t):
        if seen is not None:
            seen.append((g, own[0], p, t))
        mean = own[0] + (g - own[0]) / t
        return mean, (mean,)

    return optim.leafwise("averaged", update, lambda p: (np.zeros_like(p),))


def test_a_rule_for_one_leaf_is_an_optimizer_of_trees():
    params = {"w": np.ones(2), "more": [np.ones((2, 2)), 3], "none": None}
    grads = {"w": np.full(2, 3.0), "more": [np.ones((2, 2)), None], "none": None}
    state = averaged().init(params)
    for count in (1, 2):
        updates, state = averaged().update(grads, state, params)
        assert state.count == count
    assert_allclose(updates, grads)
    assert updates["more"][1] is None
    assert not updates["w"].flags.writeable


def test_a_rule_may_do_without_parameters():
    params, grads = {"w": np.ones(2), "b": np.ones(1)}, {"w": np.ones(2), "b": None}
    for optimizer in (optim.adam(0.1), optim.sgd(0.1, 0.9), averaged()):
        state = optimizer.init(params)
        alone, with_none = optimizer.update(grads, state)
        beside, with_params = optimizer.update(grads, state, params)
        assert_allclose((alone, with_none), (beside, with_params))
        assert alone["b"] is None


def test_a_rule_computes_in_single_what_has_16_bits():
    seen = []
    params = np.ones(2, "float16")
    updates, state = averaged(seen).update(params, averaged().init(params), params)
    assert updates.dtype == state.leaves[0].dtype == np.float16
    assert {part.dtype for part in seen[0][:3]} == {np.dtype("float32")}


def test_a_state_keeps_no_array_that_the_caller_can_write_to():
    last = optim.leafwise("last", lambda g, own, p, t: (own[0], (g,)), lambda p: (0 * p,))
    grads = np.ones(2)
    _, state = last.update(grads, last.init(np.ones(2)), np.ones(2))
    grads[:] = 7.0
    assert_allclose(last.update(grads, state, np.ones(2))[0], np.ones(2))


def test_a_rule_that_needs_parameters_says_so():
    rule = optim.leafwise("decayed", lambda g, own, p, t: (g + p, own), needs_params=True)
    with pytest.raises(TypeError, match=r"decayed: it needs the parameters; call update\(grads"):
        rule.update(np.ones(2), rule.init(np.ones(2)))


def test_what_a_rule_keeps_fits_its_parameter_or_says_otherwise():
    rule = lambda fits: optim.leafwise(
        "norms",
        lambda g, own, p, t: (g, (own[0] + g.sum(),)),
        lambda p: (np.float64(0),),
        fits=fits,
    )
    with pytest.raises(ValueError, match=r"fits='dtype' says that init returns.*choose another"):
        rule("dtype").init(np.ones(2))
    state = rule("any").init(np.ones(2))
    assert rule("any").update(np.ones(2), state)[1].leaves == (2.0,)


def test_a_rule_that_returns_something_else_is_told():
    rule = optim.leafwise("odd", lambda g, own, p, t: (g, g), lambda p: (0 * p,))
    with pytest.raises(TypeError, match=r"own must be a tuple of 1, as init returns it"):
        rule.update(np.ones(2), rule.init(np.ones(2)), np.ones(2))
    for state in (int, "state"):
        with pytest.raises(TypeError, match="state must be a frozen class"):
            optim.leafwise("odd", lambda g, own, p, t: (g, own), state=state)
    with pytest.raises(ValueError, match="fits must be 'dtype', 'shape' or 'any', not 'all'"):
        optim.leafwise("odd", lambda g, own, p, t: (g, own), fits="all")


def test_further_keywords_reach_the_rules_that_take_them():
    seen = []

    def update(grads, state, params=None, *, value):
        seen.append(value)
        return grads, state

    takes = optim.Optimizer(lambda params: (), update)
    old = optim.Optimizer(lambda params: (), lambda grads, state, params: (grads, state))
    both = optim.chain(old, takes, optim.scale(2.0), optim.chain(takes))
    updates, _ = both.update(1.0, both.init(0.0), 0.0, value=3.0, grad=4.0)
    assert updates == 2.0
    assert seen == [3.0, 3.0]
    with pytest.raises(TypeError, match="value"):
        takes.update(1.0, (), 0.0)


def test_an_optimizer_under_optax_s_name_is_the_same():
    assert optim.GradientTransformation is optim.Optimizer
    with pytest.raises(TypeError, match=r"update must be a function update\(grads, state"):
        optim.GradientTransformation(lambda params: (), 3)


def test_moments_may_have_a_dtype_of_their_own():
    for optimizer in (optim.adam(0.1, mu_dtype="float32"), optim.sgd(0.1, 0.9, False, "float32")):
        params = np.ones(3)
        updates, state = optimizer.update(params, optimizer.init(params), params)
        assert updates.dtype == np.float64
        assert np.dtype("float32") in [getattr(x, "dtype", None) for x in fdbr.tree.leaves(state)]


def test_adam_of_complex_gradients_averages_their_squared_absolute_values():
    params = np.array([1 + 1j, 2 - 1j])
    updates, _ = optim.adam(0.1).update(params, optim.adam(0.1).init(params), params)
    assert_allclose(updates, -0.1 * params / abs(params), rtol=1e-6)
