"""Gradient transformations and wrappers: as Optax's, their laws, and what holds for all of them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.recorded import recorded
from numpy.testing import assert_allclose, assert_array_equal

import fdbr
from fdbr import nn, ops, random, train, tree
from fdbr.train import optim

RECORDED = recorded("transformations", "train")
SEEDS = st.integers(0, 1000)

WRAPPERS = {
    "masked": lambda: optim.masked(optim.adam(0.1), {"w": True, "b": False}),
    "partition": lambda: optim.partition(
        {"x": optim.adam(0.1), "y": optim.sgd(0.1, 0.9)}, {"w": "x", "b": "y"}
    ),
    "apply_if_finite": lambda: optim.apply_if_finite(optim.adam(0.1), 2),
    "conditionally_transform": lambda: optim.conditionally_transform(
        optim.adam(0.1), lambda step: step % 3 == 1
    ),
    "conditionally_mask": lambda: optim.conditionally_mask(
        optim.adam(0.1), lambda step: step % 3 == 1
    ),
    "multi_steps": lambda: optim.MultiSteps(optim.adam(0.1), 3),
    "multi_steps sum": lambda: optim.MultiSteps(
        optim.sgd(0.1, 0.9), lambda step: step + 1, use_grad_mean=False
    ),
    "inject": lambda: optim.inject_hyperparams(optim.adam)(
        learning_rate=optim.exponential_decay(0.1, 2, 0.5), b1=0.8
    ),
    "plateau": lambda: optim.chain(
        optim.sgd(0.1, 0.9),
        optim.reduce_on_plateau(0.5, 2, 0.01, cooldown=1, accumulation_size=2),
    ),
    "clip_grad_norm_": lambda: optim.clip_by_global_norm(0.9),
}


def made(case):
    name, arguments = json.loads(case)
    return (
        WRAPPERS[arguments]() if name in ("wrapper", "torch") else getattr(optim, name)(**arguments)
    )


def gradients(step):
    generator = np.random.default_rng(step)
    scale = 10.0 ** (step % 3 - 1)
    found = {"w": generator.normal(size=(3, 2)) * scale, "b": generator.normal(size=2) * scale}
    return {name: np.round(array, 6) for name, array in found.items()}


def parameters():
    generator = np.random.default_rng(100)
    return {"w": np.round(generator.normal(size=(3, 2)), 6), "b": np.array([0.5, -0.25])}


VALUES = [9.0, 7.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 4.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("case", RECORDED)
def test_updates_are_those_of_optax_and_pytorch(case, jitted):
    transformation, expected = made(case), RECORDED[case]
    params, holes = parameters(), "zero_nans" in case or "apply_if_finite" in case
    state = transformation.init(params)

    def step(grads, state, params, value):
        updates, state = transformation.update(grads, state, params, value=value)
        return updates, state, optim.apply_updates(params, updates)

    run = fdbr.jit(step) if jitted else step
    for index, value in enumerate(VALUES):
        grads = gradients(index)
        if holes and index % 4 == 2:
            grads["w"][0, 1] = np.nan
        updates, state, params = run(grads, state, params, np.float64(value))
        for name in updates:
            # PyTorch adds 1e-6 to the norm; Optax computes injected schedules in float32.
            near = 1e-5 if "torch" in case or "inject" in case else 1e-9
            assert_allclose(updates[name], expected[name][index], rtol=near, atol=1e-12)


# --- what holds for all of them -----------------------------------------------------

KEY = random.key(0)
ALL = {
    "clip": optim.clip(0.5),
    "hard_clip": optim.hard_clip(-0.1, 0.2),
    "clip_by_global_norm": optim.clip_by_global_norm(0.5),
    "clip_by_block_norm": optim.clip_by_block_norm(0.5),
    "clip_by_block_rms": optim.clip_by_block_rms(0.5),
    "adaptive_grad_clip": optim.adaptive_grad_clip(0.1),
    "add_decayed_weights": optim.add_decayed_weights(0.1),
    "a scheduled decay": optim.add_decayed_weights(optim.linear_schedule(0.0, 1.0, 5), "w"),
    "add_l1": optim.add_l1(0.1),
    "proximal_l1": optim.proximal_l1(0.1),
    "add_noise": optim.add_noise(0.1, 0.55, KEY),
    "centralize": optim.centralize(),
    "normalize_by_update_norm": optim.normalize_by_update_norm(),
    "scale_by_trust_ratio": optim.scale_by_trust_ratio(),
    "gradient_lars": optim.gradient_lars(),
    "scale_by_param_block_norm": optim.scale_by_param_block_norm(),
    "scale_by_param_block_rms": optim.scale_by_param_block_rms(),
    "zero_nans": optim.zero_nans(),
    "keep_params_nonnegative": optim.keep_params_nonnegative(),
    "set_to_zero": optim.set_to_zero(),
    "stateless": optim.stateless(lambda updates, params: tree.scale(2.0, updates)),
    "stateless_with_tree_map": optim.stateless_with_tree_map(lambda g, p: 2 * g),
    "ema": optim.ema(0.9),
    "apply_every": optim.apply_every(3),
    "masked": optim.masked(optim.adam(0.1), "b"),
    "partition": optim.partition(
        {"x": optim.adam(0.1), "y": optim.sgd(0.1)}, optim.path_labels({"w": "x"}, "y")
    ),
    "freeze": optim.chain(optim.adam(0.1), optim.freeze("b.*")),
    "selective_transform": optim.selective_transform(optim.adam(0.1), freeze_mask="w"),
    "apply_if_finite": optim.apply_if_finite(optim.adam(0.1), 3),
    "conditionally_transform": optim.conditionally_transform(optim.scale(2.0), lambda s: s > 3),
    "conditionally_mask": optim.conditionally_mask(optim.scale(2.0), lambda s: s > 3),
    "MultiSteps": optim.MultiSteps(optim.adam(0.1), 3),
    "MultiSteps that skips": optim.MultiSteps(
        optim.adam(0.1), lambda s: 1 + s, should_skip_update_fn=optim.skip_not_finite
    ),
    "dynamic_loss_scale": optim.dynamic_loss_scale(optim.adam(0.1), growth_interval=4),
    "inject_hyperparams": optim.inject_hyperparams(optim.adam)(
        learning_rate=optim.exponential_decay(0.1, 2, 0.5)
    ),
    "reduce_on_plateau": optim.chain(optim.sgd(0.1), optim.reduce_on_plateau(0.5, patience=2)),
    "params_ema": optim.chain(optim.adam(0.1), optim.params_ema(0.9)),
    "a plain mean": optim.chain(optim.adam(0.1), optim.params_ema(lambda c: c / (c + 1))),
    "snapshot": optim.chain(optim.clip(1.0), optim.snapshot("norm", optim.global_norm)),
    "monitor": optim.monitor(
        {"n": optim.global_norm, "m": optim.measure_with_ema(optim.global_norm, 0.5)}
    ),
    "flatten": optim.flatten(optim.adam(0.1)),
    "named_chain": optim.named_chain(("clip", optim.clip(1.0)), ("adam", optim.adam(0.1))),
}
TWO_WAYS = {
    *("MultiSteps", "MultiSteps that skips", "conditionally_transform", "conditionally_mask")
}


def trees(seed=0, dtype="float32"):
    """Parameters with what is not trained, and gradients."""
    w, b = (random.normal(key, shape, dtype) for key, shape in zip(
        random.split(random.key(seed)), ((2, 3), (2,)), strict=True
    ))  # fmt: skip
    return {"w": w, "b": [b], "steps": np.arange(2), "none": None}


def without(params):
    return {**params, "steps": None, "none": None}


def same_kinds(first, second):
    """Whether two trees have the same structure, and leaves of the same kinds."""
    ours, theirs = (tree.flatten(t) for t in (first, second))
    kinds = [
        [(getattr(leaf, "dtype", type(leaf)), getattr(leaf, "shape", ())) for leaf in leaves]
        for leaves, _ in (ours, theirs)
    ]
    return ours[1] == theirs[1] and kinds[0] == kinds[1]


@pytest.mark.parametrize("name", ALL)
def test_a_jitted_step_is_traced_once_for_each_way_and_gives_the_same(name):
    transformation = ALL[name]
    params = trees()

    def step(state, grads, params, value):
        return transformation.update(grads, state, params, value=value)

    jitted = fdbr.jit(step)
    eager_state = state = transformation.init(params)
    for index in range(20):
        grads, value = without(trees(index + 1)), np.float32(3.0 if index > 5 else 10 - index)
        updates, eager_state = step(eager_state, grads, params, value)
        found, state = jitted(state, grads, params, value)
        assert updates["steps"] is found["steps"] is None
        assert same_kinds(updates, grads)
        assert same_kinds(found, grads)
        assert same_kinds(state, eager_state)
        for a, b in zip(*map(tree.leaves, ((found, state), (updates, eager_state))), strict=True):
            assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert len(jitted.report().traces) == (2 if name in TWO_WAYS else 1)


@pytest.mark.parametrize("name", ALL)
def test_states_are_saved_and_loaded_bit_by_bit(name, tmp_path):
    params, transformation = trees(), ALL[name]
    state = transformation.init(params)
    for index in range(4):
        grads = without(trees(index + 1))
        _, state = transformation.update(grads, state, params, value=np.float32(index))
    train.save(tmp_path / "state", state)
    loaded = train.load(tmp_path / "state", like=transformation.init(params))
    assert same_kinds(loaded, state)
    for a, b in zip(*map(tree.leaves, (loaded, state)), strict=True):
        assert_array_equal(a, b)
    ours, theirs = (
        transformation.update(grads, s, params, value=np.float32(1.0))[0] for s in (state, loaded)
    )
    for a, b in zip(*map(tree.leaves, (ours, theirs)), strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_updates_keep_dtypes_and_are_read_only_and_arguments_are_untouched(name, dtype):
    params, grads = (tree.map(np.array, trees(seed, dtype)) for seed in (0, 1))
    grads = without(grads)
    before = tree.map(np.copy, (params, grads))
    state = ALL[name].init(params)
    for _ in range(2):
        updates, state = ALL[name].update(grads, state, params, value=np.float32(1.0))
    assert same_kinds(updates, grads)
    own = set(map(id, tree.leaves(grads)))  # which some hand on as they are
    for leaf in tree.leaves((updates, state)):
        assert not isinstance(leaf, np.ndarray) or not leaf.flags.writeable or id(leaf) in own
    for old, new in zip(*map(tree.leaves, (before, (params, grads))), strict=True):
        assert_array_equal(old, new)
        assert new.flags.writeable


@pytest.mark.parametrize("name", ALL)
def test_arrays_of_every_module_are_transformed(name, xp, to_numpy):
    if name == "add_noise":
        pytest.skip("keys are NumPy's")

    def run(make):
        params = {"w": make(np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3))}
        params["b"] = [make(np.ones(2, "float32"))]
        state = ALL[name].init(params)
        for index in range(3):
            grads = {"w": params["w"] ** 2 + index, "b": [params["b"][0] - index]}
            updates, state = ALL[name].update(grads, state, params, value=make(np.float32(1.0)))
        return updates

    found, expected = run(xp.asarray), run(np.array)
    assert type(found["w"]) is type(xp.asarray(np.ones(1)))
    assert_allclose(to_numpy(found["w"]), expected["w"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_are_parameters(name, shape):
    params = {"w": np.ones(shape, "float32"), "b": [2.0]}
    grads = {"w": np.ones(shape, "float32"), "b": [1.0]}
    state = ALL[name].init(params)
    updates, state = ALL[name].update(grads, state, params, value=1.0)
    assert updates["w"].shape == shape
    assert updates["w"].dtype == np.float32
    assert type(updates["b"][0]) is float


# --- laws ---------------------------------------------------------------------------


def run(transformation, grads, params):
    state, found = transformation.init(params), []
    for g in grads:
        updates, state = transformation.update(g, state, params)
        found.append(updates)
    return found, state


def assert_same(first, second, **tolerance):
    for a, b in zip(*map(tree.leaves, (first, second)), strict=True):
        assert_allclose(a, b, **(tolerance or {"rtol": 1e-6}))


@settings(max_examples=10)
@given(SEEDS)
def test_masked_is_the_plain_transformation_of_its_part(seed):
    params = trees(seed, "float64")
    grads = [without(trees(seed + i, "float64")) for i in range(1, 4)]
    found, state = run(optim.masked(optim.adam(0.1), "w"), grads, params)
    alone, own = run(optim.adam(0.1), [{"w": g["w"]} for g in grads], {"w": params["w"]})
    assert_same([u["w"] for u in found], [u["w"] for u in alone])
    assert [u["b"][0] is g["b"][0] for u, g in zip(found, grads, strict=True)] == [True] * 3
    assert tree.size(state) == tree.size(own)


@settings(max_examples=10)
@given(SEEDS)
def test_a_partition_is_each_optimizer_alone(seed):
    params = trees(seed, "float64")
    grads = [without(trees(seed + i, "float64")) for i in range(1, 4)]
    labels = {"w": "x", "b": "y", "steps": "y", "none": None}
    parts = {"x": optim.adam(0.1), "y": optim.sgd(0.3, 0.9)}
    for given_labels in (labels, lambda p: labels, optim.path_labels({"w": "x"}, "y")):
        found, _ = run(optim.partition(parts, given_labels), grads, params)
        for key, label in (("w", "x"), ("b", "y")):
            alone, _ = run(parts[label], [g[key] for g in grads], params[key])
            assert_same([u[key] for u in found], alone)


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 5))
def test_several_equal_gradients_make_one_step_of_their_mean(seed, k):
    params, g = trees(seed, "float64"), without(trees(seed + 1, "float64"))
    found, state = run(optim.MultiSteps(optim.adam(0.1), k), [g] * (2 * k), params)
    alone, own = run(optim.adam(0.1), [g, g], params)
    for index, updates in enumerate(found):
        if index % k == k - 1:
            assert_same(updates, alone[index // k])
        else:
            assert all((leaf == 0).all() for leaf in tree.leaves(updates))
    assert_same(state.inner_opt_state, own)


@settings(max_examples=10)
@given(SEEDS)
def test_chains_are_associative(seed):
    params, grads = trees(seed), [without(trees(seed + i)) for i in range(1, 4)]
    a, b, c = optim.clip(0.3), optim.trace(0.9), optim.scale_by_adam()
    for other in (optim.chain(optim.chain(a, b), c), optim.chain(a, optim.chain(b, c))):
        assert_same(run(other, grads, params)[0], run(optim.chain(a, b, c), grads, params)[0])


@settings(max_examples=20)
@given(st.lists(st.sampled_from([1.0, -2.0, np.nan, np.inf, -np.inf]), min_size=1, max_size=8))
@pytest.mark.parametrize("jitted", [False, True])
def test_what_is_not_finite_never_comes_through_and_leaves_the_state_alone(jitted, numbers):
    optimizer, params = optim.apply_if_finite(optim.adam(0.1), 100), np.ones(2)
    update = fdbr.jit(optimizer.update) if jitted else optimizer.update
    state = optimizer.init(params)
    total = row = 0
    for number in numbers:
        updates, new = update(np.array([0.5, number]), state, params)
        assert np.isfinite(updates).all()
        row = 0 if np.isfinite(number) else row + 1
        total += not np.isfinite(number)
        assert (new.notfinite_count, new.total_notfinite) == (row, total)
        assert new.last_finite is bool(np.isfinite(number))
        if not np.isfinite(number):
            assert not updates.any()
            assert_same(new.inner_state, state.inner_state, rtol=0)
        state = new


def test_updates_that_overflow_are_skipped_too():
    optimizer = optim.apply_if_finite(optim.scale(1e300), 3)
    with np.errstate(over="ignore"):
        updates, state = optimizer.update(np.array([1e10]), optimizer.init(np.ones(1)))
    assert updates == 0
    assert state.total_notfinite == 1


def test_after_too_many_in_a_row_what_is_not_finite_is_applied():
    optimizer = optim.apply_if_finite(optim.sgd(1.0), 2)
    state, found = optimizer.init(np.ones(1)), []
    for _ in range(4):
        updates, state = optimizer.update(np.array([np.nan]), state)
        found.append(bool(np.isnan(updates[0])))
    assert found == [False, False, True, True]


@given(st.lists(st.floats(-100, 100, width=16), min_size=1, max_size=5), st.integers(0, 8))
def test_a_loss_scale_and_back_is_exact_in_float16(numbers, exponent):
    grads = np.array(numbers, "float16")
    scale = optim.DynamicLossScale(2.0**exponent)
    scaled = (scale.scale * grads).astype("float16")
    if np.isfinite(scaled).all():
        assert_array_equal(scale.unscale(scaled), grads)
        assert scale.unscale(scaled).dtype == np.float16


@given(st.lists(st.booleans(), max_size=20))
def test_a_loss_scale_doubles_after_good_steps_and_halves_after_an_overflow(steps):
    optimizer = optim.dynamic_loss_scale(optim.sgd(1.0), 8.0, 3, min_scale=2.0, max_scale=64.0)
    state, expected, good, skipped = optimizer.init(0.0), 8.0, 0, 0
    for finite in steps:
        grads = state.loss_scale.scale * 1.0 if finite else np.inf
        updates, state = optimizer.update(float(grads), state, 0.0)
        assert updates == (-1.0 if finite else 0.0)
        good = good + 1 if finite else 0
        skipped += not finite
        if not finite:
            expected = max(expected / 2, 2.0)
        elif good == 3:
            expected, good = min(expected * 2, 64.0), 0
        assert (state.loss_scale.scale, state.loss_scale.good_steps) == (expected, good)
        assert state.skipped == skipped


def test_scaled_losses_keep_gradients_in_float16_from_vanishing():
    def loss(w):
        return (ops.astype(w, "float16") ** 2 * 1e-5).sum()

    w = np.full(3, 1e-3, "float32")
    optimizer = optim.dynamic_loss_scale(optim.sgd(1.0))
    state = optimizer.init(w)
    grads = fdbr.grad(lambda w: optim.scale_loss(state, loss(w)))(w)
    updates, _ = optimizer.update(grads, state, w)
    assert abs(-updates / 2e-8 - 1).max() < 1e-2
    assert abs(fdbr.grad(loss)(w) / 2e-8 - 1).max() > 0.5  # as it is without


@settings(max_examples=10)
@given(SEEDS, st.floats(0.0, 0.99))
def test_the_average_of_parameters_is_the_weighted_mean_of_all_after_updates(seed, decay):
    params = trees(seed, "float64")
    optimizer = optim.chain(optim.sgd(0.1), optim.params_ema(decay))
    plain = optim.chain(optim.sgd(0.1), optim.params_ema(lambda c: c / (c + 1)))
    state, other, met = optimizer.init(params), plain.init(params), []
    for index in range(5):
        grads = without(trees(seed + index, "float64"))
        other = plain.update(grads, other, params)[1]
        updates, state = optimizer.update(grads, state, params)
        params = optim.apply_updates(params, updates)
        met.append(params["w"])
    weights = decay ** np.arange(4, -1, -1)
    expected = np.tensordot(weights, met, 1) / weights.sum()
    found = optim.averaged_params(state, params)
    assert_allclose(found["w"], expected, rtol=1e-9, atol=1e-12)
    assert_allclose(optim.averaged_params(other, params)["w"], np.mean(met, 0), rtol=1e-9)
    assert found["steps"] is params["steps"]


def test_the_average_of_parameters_of_16_bits_is_kept_in_float32():
    params = np.ones(2, "float16")
    optimizer = optim.params_ema(0.999, debias=False)
    state = optimizer.init(params)
    for _ in range(3):
        _, state = optimizer.update(np.full(2, -0.5, "float16"), state, params)
    assert state.ema.dtype == np.float32
    assert_allclose(state.ema, 0.5 + 0.5 * 0.999**3, rtol=1e-6)
    assert optim.averaged_params(state, params).dtype == np.float16


def test_noise_has_the_variance_that_is_asked_for_and_follows_from_the_key():
    params = {"w": np.zeros((200, 200)), "b": np.zeros(3)}
    first, second = (optim.add_noise(0.04, 1.0, random.key(seed)) for seed in (0, 1))
    state = first.init(params)
    found = []
    for _ in range(2):
        updates, state = first.update(params, state, params)
        found.append(updates)
    assert abs(found[0]["w"].std() - 0.2) < 0.005
    assert abs(found[1]["w"].std() - 0.2 / 2**0.5) < 0.005
    again, _ = first.update(params, first.init(params), params)
    assert_array_equal(again["w"], found[0]["w"])
    other, _ = second.update(params, second.init(params), params)
    assert not np.allclose(other["w"], again["w"])
    assert not np.allclose(again["w"].ravel()[:3], again["b"])


def test_chainers_hooks_have_their_formulas():
    p, g = np.array([3.0, -4.0]), np.array([0.5, 2.0])

    def update(transformation):
        return transformation.update(g, transformation.init(p), p)[0]

    assert_allclose(update(optim.add_decayed_weights(0.1)), g + 0.1 * p)
    assert_allclose(update(optim.add_l1(0.1)), g + 0.1 * np.sign(p))
    assert_allclose(update(optim.hard_clip(-0.2, 1.0)), [0.5, 1.0])
    assert_allclose(update(optim.clip_by_global_norm(1.0)), g / np.linalg.norm(g))
    rate = 5 / (1e-9 + np.linalg.norm(g) + 0.1 * 5)
    assert_allclose(update(optim.gradient_lars(1e-2, 0.1)), (g + 0.1 * p) * rate)
    small = optim.gradient_lars(10.0, 0.1).update(g, optim.EmptyState(), p)[0]
    assert_allclose(small, g + 0.1 * p)


def test_a_proximal_step_solves_the_lasso():
    keys = random.split(random.key(3), 2)
    x, noise = random.normal(keys[0], (40, 6)), random.normal(keys[1], (40,))
    y = x @ np.array([2.0, 0.0, 0.0, -1.0, 0.0, 0.0]) + 0.1 * noise
    optimizer = optim.chain(optim.sgd(0.1), optim.proximal_l1(0.1 * 0.2))
    w = np.zeros(6)
    state = optimizer.init(w)
    for _ in range(300):
        updates, state = optimizer.update(x.T @ (x @ w - y) / 40, state, w)
        w = optim.apply_updates(w, updates)
    slope = x.T @ (x @ w - y) / 40
    assert (w == 0).sum() == 4
    assert (abs(slope[w == 0]) <= 0.2).all()
    assert_allclose(slope[w != 0], -0.2 * np.sign(w[w != 0]), rtol=1e-6)


# --- masks and labels ---------------------------------------------------------------


def model():
    return nn.Sequential(
        nn.Linear.init(KEY, 2, 3), nn.BatchNorm.init(KEY, 3), nn.Linear.init(KEY, 3, 1)
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("layers[0]", ["layers[0].weight", "layers[0].bias"]),
        ("layers.0.*", ["layers[0].weight", "layers[0].bias"]),
        ("*.bias", ["layers[0].bias", "layers[1].bias", "layers[2].bias"]),
        ("layers[?].weight", ["layers[0].weight", "layers[1].weight", "layers[2].weight"]),
    ],
)
def test_patterns_fit_paths_and_branches(pattern, expected):
    net = model()
    mask = optim.path_mask(pattern)(net)
    found = [p for p, value in zip(tree.paths(net), tree.leaves(mask), strict=True) if value]
    assert found == expected
    inverted = tree.leaves(optim.path_mask(pattern, inverted=True)(net))
    assert [not value for value in inverted] == tree.leaves(mask)


def test_frozen_parts_of_a_model_stay_what_they_are_and_have_no_state():
    net = model()
    x = random.normal(KEY, (8, 2))

    def loss(net):
        y, _ = net.train(x)
        return (y**2).mean()

    optimizer = optim.selective_transform(optim.adam(0.1), freeze_mask="layers[0]")
    state, new = optimizer.init(net), net
    step = fdbr.jit(lambda net, state: optimizer.update(fdbr.grad(loss)(net), state, net))
    for _ in range(3):
        updates, state = step(new, state)
        new = optim.apply_updates(new, updates)
    assert_array_equal(new.layers[0].weight, net.layers[0].weight)
    assert not np.allclose(new.layers[2].weight, net.layers[2].weight)
    assert state.inner_states["train"][0].mu.layers[0].weight is None


def test_a_mask_that_does_not_fit_is_named():
    params = {"a": np.ones(2), "b": np.ones(2)}
    for mask, error, message in (
        ({"a": True}, ValueError, "the mask must be a tree of the parameters' structure"),
        ({"a": True, "b": 1.0}, TypeError, r"truth values, but at \['b'\] it has float 1.0"),
        ("head", ValueError, r"no leaf has a path that fits 'head'; there are \['a'\], \['b'\]"),
    ):
        with pytest.raises(error, match=message):
            optim.masked(optim.sgd(0.1), mask).init(params)
    with pytest.raises(ValueError, match=r"\['b'\] has the label 'y', for which there is no"):
        optim.partition({"x": optim.sgd(0.1)}, {"a": "x", "b": "y"}).init(params)
    with pytest.raises(ValueError, match=r"\['b'\] fits no pattern"):
        optim.path_labels({"a": 1})(params)
    with pytest.raises(TypeError, match="masked: it takes an Optimizer"):
        optim.masked(0.1, "a")


# --- hyperparameters in the state ---------------------------------------------------


def test_hyperparameters_are_seen_and_changed_without_a_trace():
    optimizer = optim.chain(optim.clip(1.0), optim.inject_hyperparams(optim.sgd)(0.5, momentum=0.9))
    update = fdbr.jit(optimizer.update)
    params = np.zeros(2, "float32")
    grads, state = np.ones(2, "float32"), optimizer.init(params)
    for rate in (0.5, 0.25, 0.125):
        state = optim.tree_set(state, learning_rate=rate, momentum=0.0)
        updates, state = update(grads, state, params)
        assert_allclose(updates, -rate)
        assert updates.dtype == np.float32
        assert optim.tree_get(state, "learning_rate") == rate
    assert len(update.report().traces) == 1


def test_measurements_stand_in_the_state():
    watched = optim.chain(
        optim.monitor({"norm": optim.global_norm, "mean": optim.measure_with_ema(len, 0.5)}),
        optim.scale(0.5),
        optim.snapshot("half", optim.global_norm),
    )
    _, state = watched.update([3.0, 4.0], watched.init([0.0, 0.0]))
    found = [float(optim.tree_get(state, name)) for name in ("norm", "mean", "half")]
    assert found == [5.0, 2.0, 2.5]


@settings(max_examples=10)
@given(SEEDS)
def test_parameters_as_vectors_are_stepped_as_they_are(seed):
    params, grads = trees(seed), [without(trees(seed + i)) for i in range(1, 4)]
    mixed = {**params, "w": params["w"].astype("float64")}
    given_grads = [{**g, "w": g["w"].astype("float64")} for g in grads]
    found, _ = run(optim.flatten(optim.adam(0.1)), given_grads, mixed)
    assert_same(found, run(optim.adam(0.1), given_grads, mixed)[0])


@settings(max_examples=10)
@given(SEEDS, st.floats(0.1, 5.0))
def test_gradients_of_examples_are_shortened_one_by_one(seed, most):
    x = random.normal(random.key(seed), (5, 3))
    grads = fdbr.vmap(
        fdbr.grad(lambda p, x: (p["w"] * x).sum() ** 2 + p["b"] * x.sum()), (None, 0)
    )({"w": np.ones(3), "b": 0.5}, x)
    sums, count = optim.per_example_global_norm_clip(grads, most)
    rows = [{"w": w, "b": b} for w, b in zip(grads["w"], grads["b"], strict=True)]
    each = [optim.clip_by_global_norm(most).update(row, optim.EmptyState()) for row in rows]
    assert_allclose(sums["w"], np.sum([u["w"] for u, _ in each], 0), rtol=1e-9)
    assert_allclose(sums["b"], np.sum([u["b"] for u, _ in each], 0), rtol=1e-9)
    assert count == sum(optim.global_norm(row) > most for row in rows)


def test_factories_may_take_any_number_of_arguments():
    def factory(first, /, *others, rate=0.5, **more):
        return optim.chain(first, *others, optim.sgd(rate))

    optimizer = optim.inject_hyperparams(factory, ("first",))(optim.clip(1.0), optim.scale(2.0))
    state = optim.tree_set(optimizer.init(0.0), rate=0.25)
    assert optimizer.update(3.0, state)[0] == -0.5


def test_schedules_with_a_state_see_the_keywords_of_update():
    class Follows:
        def init(self):
            return 1.0

        def update(self, state, *, value, **extra):
            return 0.5 * state if value > 1 else state

        def __call__(self, state, **extra):
            return state

    optimizer = optim.inject_hyperparams(optim.sgd)(Follows())
    state, found = optimizer.init(0.0), []
    for value in (2.0, 0.0, 2.0, 0.0):
        updates, state = optimizer.update(1.0, state, 0.0, value=value)
        found.append(updates)
    assert found == [-1.0, -0.5, -0.5, -0.25]


def test_names_that_are_not_there_are_told():
    state = optim.adam(0.1).init(0.0)
    with pytest.raises(KeyError, match=r"no field is named 'rate'; there are \['count', 'mu', 'nu"):
        optim.tree_set(state, rate=0.5)
    with pytest.raises(KeyError, match="2 fields are named 'count'"):
        optim.tree_get(optim.chain(optim.adam(0.1), optim.ema(0.5)).init(0.0), "count")
    with pytest.raises(ValueError, match=r"static_args has \['rate'\]"):
        optim.inject_hyperparams(optim.sgd, static_args="rate")
    plateau = optim.reduce_on_plateau()
    with pytest.raises(TypeError, match=r"it needs the value; call update\(grads"):
        plateau.update(1.0, plateau.init(0.0), 0.0)


# --- other trees --------------------------------------------------------------------


def test_slow_copies_follow():
    new = {"w": np.ones(2, "float32"), "n": 3, "m": None}
    old = {"w": np.zeros(2, "float32"), "n": 1, "m": None}
    found = optim.incremental_update(new, old, 0.25)
    assert_array_equal(found["w"], [0.25, 0.25])
    assert found["w"].dtype == np.float32
    assert (found["n"], found["m"]) == (3, None)
    jitted = fdbr.jit(
        lambda steps: optim.periodic_update(new["w"], old["w"], steps, 3)
    )  # fmt: skip
    assert [float(jitted(steps)[0]) for steps in range(4)] == [1.0, 0.0, 0.0, 1.0]


STATES = {
    "adam": lambda: optim.adam(0.1),
    "chain": lambda: optim.chain(
        optim.clip(1.0), optim.sgd(optim.linear_schedule(1.0, 0.0, 9), 0.9)
    ),
    "masked": lambda: optim.chain(optim.adam(0.1), optim.params_ema(0.9)),
    "multi steps": lambda: optim.MultiSteps(optim.adam(0.1), 2),
    "inject": lambda: optim.inject_hyperparams(optim.adam)(0.1),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("known", [False, True])
def test_a_state_is_carried_over_where_paths_agree(name, known):
    old = {"a": np.ones((2, 3)), "b": np.ones(2), "gone": [np.ones(1)]}
    new = {"a": old["a"], "b": np.ones(3), "more": {"c": np.ones(4)}, "steps": np.arange(2)}
    optimizer = STATES[name]()
    state = optimizer.init(old)
    for seed in range(3):
        grads = tree.full_like(old, seed + 0.5)
        _, state = optimizer.update(grads, state, old)
    found = optim.migrate(state, old, new, optimizer if known else None)
    fresh = optimizer.init(new)
    assert same_kinds(found, fresh)
    kept = [p for p in tree.paths(fresh) if p.endswith("['a']")]
    assert kept
    ours, before, first = (dict(zip(tree.paths(t), tree.leaves(t), strict=True)) for t in (
        found, state, fresh
    ))  # fmt: skip
    for path, value in ours.items():
        is_new = any(part in path for part in ("['b']", "more"))
        assert_array_equal(value, (first if is_new else before)[path])
    grads = {**tree.map(np.ones_like, new), "steps": None}
    updates, _ = optimizer.update(grads, found, new)
    assert np.isfinite(updates["more"]["c"]).all()


def test_migration_tells_what_is_kept():
    old = {"a": np.ones(2), "b": np.ones(2), "c": 1.0}
    told = optim.migration(old, {"a": np.ones(2), "b": np.ones(3), "d": 1.0})
    assert (told.kept, told.changed) == (("['a']",), ("['b']",))
    assert (told.new, told.dropped) == (("['d']",), ("['c']",))
    assert str(told) == "1 kept: ['a']; 1 new: ['d']; 1 changed: ['b']; 1 gone: ['c']"


def test_parameters_that_look_like_a_chain_are_no_trap():
    old, new = (np.ones(2), np.ones(3)), (np.ones(2), np.ones(3), np.ones(4))
    optimizer = optim.chain(optim.trace(0.9), optim.scale_by_adam())
    state = optimizer.init(old)
    _, state = optimizer.update(old, state, old)
    for known in (None, optimizer):
        found = optim.migrate(state, old, new, known)
        assert same_kinds(found, optimizer.init(new))
        assert_array_equal(found[0].trace[1], state[0].trace[1])
        assert found[1].count == 1


def test_a_state_whose_beginning_is_not_told_asks_for_the_optimizer():
    rule = optim.leafwise("rows", lambda g, own, p, t: (g, own), lambda p: (p[0],), fits="any")
    old, new = {"a": np.ones((2, 3))}, {"b": np.ones((2, 3))}
    with pytest.raises(ValueError, match=r"\['b'\] begins is not told .* give optimizer="):
        optim.migrate(rule.init(old), old, new)
    assert_array_equal(optim.migrate(rule.init(old), old, new, rule).leaves["b"][0], np.ones(3))
    with pytest.raises(ValueError, match="the state is not one of this optimizer"):
        optim.migrate(rule.init(old), old, new, optim.adam(0.1))


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (optim.clip, (-1.0,), "max_delta must be at least 0"),
        (optim.hard_clip, (1.0, -1.0), "lower_bound must be at most upper_bound"),
        (optim.clip_by_block_rms, (0.0,), "threshold must be positive"),
        (optim.add_noise, (0.1, 0.5, 3), "key must be a key of fdbr.random"),
        (optim.ema, (1.0,), r"decay must lie in \[0, 1\)"),
        (optim.params_ema, (1.0,), r"decay must lie in \[0, 1\)"),
        (optim.apply_every, (0,), "k must be at least 1"),
        (optim.MultiSteps, (optim.sgd(0.1), 0), "every_k_schedule must be at least 1"),
        (optim.apply_if_finite, (optim.sgd(0.1), -1), "max_consecutive_errors must be at least"),
        (optim.reduce_on_plateau, (1.5,), r"factor must lie in \(0, 1\)"),
        (optim.reduce_on_plateau, (0.5, 2, 0.0), "rtol or atol positive"),
        (optim.DynamicLossScale, (1.0, 0, 10, 0.5), "growth_factor must be at least 1"),
        (optim.named_chain, (("a", optim.clip(1.0)), ("a", optim.clip(1.0))), "one name"),
        (optim.path_mask, (), "give patterns of paths"),
        (optim.scale_loss, ((), 1.0), "the state has 0 scales of losses"),
        (optim.averaged_params, ((), 1.0), "the state has 0 means of parameters"),
    ],
)
def test_arguments_out_of_range_are_named(make, arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(*arguments)


def test_complex_gradients_have_no_order_but_norms():
    g = np.array([3.0 + 4.0j, 0.0])
    with pytest.raises(TypeError, match=r"clip: complex numbers have no order.*complex128\[2\]"):
        optim.clip(1.0).update(g, optim.EmptyState())
    found, _ = optim.clip_by_global_norm(1.0).update(g, optim.EmptyState())
    assert_allclose(found, g / 5)
    noise = optim.add_noise(1.0, 0.0, KEY)
    found, _ = noise.update(np.zeros(4000, "complex64"), noise.init(g))
    assert found.dtype == np.complex64
    assert_allclose([found.real.std(), found.imag.std()], 0.5**0.5, rtol=0.1)


@pytest.mark.parametrize("name", ["adaptive_grad_clip", "add_decayed_weights", "add_l1"])
def test_parameters_that_are_missing_are_asked_for(name):
    with pytest.raises(TypeError, match=rf"{name}: it needs the parameters"):
        ALL[name].update([np.ones(2)], optim.EmptyState())
