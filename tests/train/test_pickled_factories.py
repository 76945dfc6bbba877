"""What factories of optimizers, schedules, triggers and stages return can be pickled."""

import copy
import functools
import inspect
import multiprocessing
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, random, train
from fdbr.train import optim


def negate_leaf(g, p=None):
    return ops.negative(g)


def negate_all(updates, params=None):
    return fdbr.tree.map(negate_leaf, updates)


def keep_sign(g, own, p, t):
    return ops.sign(g), own


def third(step, **extra):
    return step % 3 == 1


def halve(count):
    return 0.5**count


def is_matrix(path, leaf):
    return leaf.ndim == 2


def largest(updates, state=None, params=None, **extra):
    return ops.max(ops.abs(updates["b"]))


ARGUMENTS = {
    "add_noise": {"eta": 0.1, "gamma": 0.5, "key": random.key(1)},
    "noisy_sgd": {"learning_rate": 0.1, "key": random.key(1)},
    "differentially_private_aggregate": {
        "l2_norm_clip": 1.0, "noise_multiplier": 0.1, "key": random.key(2)
    },
    "masked": {"inner": optim.adam(halve), "mask": optim.path_mask(is_matrix)},
    "freeze": {"mask": {"w": True, "b": False}},
    "selective_transform": {"optimizer": optim.adam(0.1), "freeze_mask": {"w": True, "b": False}},
    "partition": {
        "transforms": {"x": optim.adam(0.1), "y": optim.sgd(0.1)},
        "param_labels": optim.path_labels({"w": "x"}, "y"),
    },
    "stateless": {"f": negate_all},
    "stateless_with_tree_map": {"f": negate_leaf},
    "scale_by_rprop": {"learning_rate": 0.1},
    "rprop": {"learning_rate": 0.1},
    "leafwise": {"name": "keep_sign", "update": keep_sign},
    "monitor": {"measures": {"largest": largest}},
    "snapshot": {"measure_name": "largest", "measure": largest},
    "measure_with_ema": {"measure": largest, "decay": 0.5},
    "join_schedules": {"schedules": [halve, optim.constant_schedule(0.1)], "boundaries": [2]},
    "sgdr_schedule": {
        "cosine_kwargs": [
            {"init_value": 0.0, "peak_value": 1.0, "warmup_steps": 1, "decay_steps": 3}
        ]
    },
    "piecewise_interpolate_schedule": {
        "interpolate_type": "linear", "init_value": 1.0, "boundaries_and_scales": {2: 0.5}
    },
    "cyclic_schedule": {"init_value": 0.1, "peak_value": 1.0, "steps_up": 2},
    "polyak_sgd": {},
    "lookahead": {"fast_optimizer": optim.sgd(0.1), "sync_period": 2, "slow_step_size": 0.5},
    "path_mask": {},
    "path_labels": {"labels": {"w": 1}, "default": 2},
}  # fmt: skip
ARGUMENTS["multi_transform"] = ARGUMENTS["partition"]
NUMBERS = {
    "int": 4, "float": 0.5, "Optimizer": optim.adam(0.1), "Callable": halve, "LearningRate": 0.25
}  # fmt: skip
BY_NAME = {
    "learning_rate": optim.exponential_decay(0.1, 2, 0.5), "should_transform_fn": third,
    "decay_steps": 8, "max_norm": 1.0, "clipping": 0.5, "threshold": 0.5,
}  # fmt: skip


def factories(kind):
    for name in optim.__all__:
        made = getattr(optim, name)
        if inspect.isfunction(made) and made.__annotations__["return"] is kind:
            yield name


def called(name):
    """What a factory returns for its arguments in the table, or for some that fit."""
    make = getattr(optim, name)
    given = ARGUMENTS.get(name)
    if given is None:
        parameters = inspect.signature(make).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
        given = {
            p.name: BY_NAME.get(p.name, NUMBERS.get(getattr(p.annotation, "__name__", ""), 0.5))
            for p in needed
        }
    if name == "chain":
        return make(optim.clip_by_global_norm(1.0), optim.adam(halve))
    if name == "named_chain":
        return make(("first", optim.trace(0.9)), ("second", optim.scale(0.1)))
    return make(**given)


def again(value):
    return pickle.loads(pickle.dumps(value))


def run(optimizer, steps=3, name=""):
    params = {"w": np.linspace(-1.0, 1.0, 6).reshape(3, 2), "b": np.array([0.5, -2.0])}
    if name == "scale_by_muon":
        params["b"] = params["b"][None]
    if name == "lookahead":
        params = optim.LookaheadParams.init_synced(params)
    state = optimizer.init(params)
    found = []

    def value_fn(params):
        return ops.sum(params["w"] ** 2) + ops.sum(params["b"] ** 4)

    for _ in range(steps):
        value, grads = fdbr.value_and_grad(value_fn)(getattr(params, "fast", params))
        extra = {"value": value, "grad": grads, "value_fn": value_fn}
        if name == "differentially_private_aggregate":
            grads = fdbr.tree.map(lambda g: np.stack([g, 2 * g]), grads)
        updates, state = optimizer.update(grads, state, params, **extra)
        if name != "measure_with_ema":
            params = optim.apply_updates(params, updates)
        found.append((updates, state))
    return found


def assert_same(first, second):
    ours, theirs = fdbr.tree.leaves(first), fdbr.tree.leaves(second)
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other, strict=isinstance(one, np.ndarray))


@pytest.mark.parametrize("name", list(factories(optim.Optimizer)))
def test_a_pickled_optimizer_makes_the_same_updates(name):
    optimizer = called(name)
    expected = run(optimizer, name=name)
    pair = optim.Optimizer(again(optimizer.init), again(optimizer.update))
    for copied in again(optimizer), copy.deepcopy(optimizer), again(again(optimizer)), pair:
        assert isinstance(copied, optim.Optimizer)
        assert_same(run(copied, name=name), expected)
        assert str(copied) == str(optimizer)


SCHEDULES = {name: called(name) for name in factories(optim.Schedule)}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_pickled_schedule_has_the_same_values(name):
    schedule = SCHEDULES[name]
    for count in range(10):
        assert again(schedule)(count) == again(schedule.function)(count) == schedule(count)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([operator.add, operator.sub, operator.mul, operator.pow]),
            st.sampled_from([*SCHEDULES.values(), 2, halve]),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_pickled_sums_and_products_of_schedules_have_the_same_values(parts, is_negative):
    schedule = optim.Schedule(halve)
    for operation, part in parts:
        schedule = operation(schedule, part)
    schedule = (-schedule if is_negative else schedule).clip(0.1, 2.0)
    for count in range(4):
        assert again(schedule)(count) == schedule(count)


PARAMS = {"w": np.ones((3, 2)), "b": np.ones(2)}


def test_pickled_masks_and_labels_are_the_same():
    for function in optim.path_mask("w", is_matrix, inverted=True), optim.path_labels({"w": 1}, 2):
        assert again(function)(PARAMS) == function(PARAMS)


@pytest.mark.parametrize("factory", [optim.inject_hyperparams, optim.inject_stateful_hyperparams])
def test_pickled_factories_of_injected_hyperparameters_make_the_same(factory):
    inject = factory(optim.adamw, static_args="mask", hyperparam_dtype="float32")
    optimizer = inject(halve, b1=0.8, mask={"w": True, "b": False})
    for copied in again(optimizer), again(inject)(halve, b1=0.8, mask={"w": True, "b": False}):
        assert_same(run(copied), run(optimizer))


def test_a_pickled_value_and_grad_reads_the_state():
    def loss_of(state):
        value, grads = again(optim.value_and_grad_from_state(total))(PARAMS, state=state)
        return value, grads

    optimizer = optim.lbfgs()
    assert_same(loss_of(optimizer.init(PARAMS)), fdbr.value_and_grad(total)(PARAMS))


def total(params):
    return ops.sum(params["w"] ** 2) + ops.sum(params["b"] ** 4)


def test_pickled_multi_steps_make_the_same_updates():
    steps = optim.MultiSteps(optim.adam(halve), 2, should_skip_update_fn=optim.skip_not_finite)
    assert_same(run(again(steps)), run(steps))
    assert_same(run(again(steps.gradient_transformation())), run(steps))


def test_a_pickled_optimizer_continues_a_state_and_a_jitted_step():
    optimizer = optim.chain(optim.masked(optim.adam(halve), "w"), optim.scale(0.5))
    params, grads = PARAMS, fdbr.tree.map(np.cos, PARAMS)

    def step(update, params, state):
        return fdbr.jit(lambda params, state: update(grads, state, params))(params, state)

    _, state = optimizer.update(grads, optimizer.init(params), params)
    restored, kept = again((optimizer, state))
    assert_same(step(restored.update, params, kept), step(optimizer.update, params, state))


def first_update(optimizer):
    return run(optimizer, steps=1)[0][0]


def test_optimizers_and_schedules_go_to_a_spawned_process():
    optimizer = optim.masked(optim.adamw(2.0 * optim.cosine_decay_schedule(0.1, 8)), "w")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply_async(first_update, (optimizer,)).get(timeout=600)
    assert_same(found, first_update(optimizer))


# --- what cannot be pickled ---------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optim.adam(lambda count: 0.1), r"optim\.adam: learning_rate is .*<lambda>"),
        (lambda: optim.adamw(0.1, mask=lambda p: p), r"optim\.adamw: mask is .*<lambda>"),
        (
            lambda: optim.chain(optim.scale(1.0), optim.Optimizer(lambda p: (), local())),
            r"optim\.chain: transformations\[1\]\.init is ",
        ),
        (lambda: optim.chain(optim.masked(optim.sgd(0.1), lambda p: p)), r"masked: mask is "),
        (lambda: optim.monitor({"m": lambda u: u}), r"optim\.monitor: measures\['m'\] is "),
        (
            lambda: optim.stateless(functools.partial(lambda a, u, p: u, 1)),
            r"optim\.stateless: f\.func is ",
        ),
        (lambda: 2 * optim.Schedule(lambda count: 1.0), r"right\.function is .*<lambda>"),
        (lambda: fdbr.grad(lambda x: x), r"f is .*<lambda>"),
    ],
)
def test_an_argument_that_cannot_be_pickled_is_named(make, message):
    made = make()
    with pytest.raises(pickle.PicklingError, match=message + ".*(?s:.)*top level of a module"):
        pickle.dumps(made)
    assert copy.deepcopy(made) is not None


def local():
    def update(grads, state, params=None, **extra):
        return grads, state

    return update


# --- triggers and stages ------------------------------------------------------------


def report(iteration):
    position = train.Position(iteration // 2, iteration % 2)
    metrics = {"loss": float(iteration % 3)}
    return train.Report(iteration, iteration // 2, metrics, None, position, float(iteration))


def is_even(report):
    return report.iteration % 2 == 0


TRIGGERS = {
    "every": train.every(epochs=1) | train.every(iterations=3),
    "time": train.every(seconds=2) & ~train.every(iterations=3),
    "once": train.once(is_even) | train.within(seconds=5),
    "not": ~train.once(is_even),
    "best": train.best("loss", every=is_even),
    "early": train.early_stopping("loss", patience=2),
    "at": train.at(iterations=[2, 3]) & is_even,
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_a_pickled_trigger_fires_on_the_same_reports(name):
    def fires(trigger):
        return [fires for _, fires in train.due(map(report, range(1, 9)), trigger)]

    assert fires(again(TRIGGERS[name])) == fires(TRIGGERS[name])


def test_pickled_stages_change_reports_in_the_same_way(tmp_path):
    stages = [
        train.average(train.every(iterations=2)),
        train.log(tmp_path / "log.jsonl"),
        train.until(train.at(iterations=6)),
    ]
    metrics = [
        [dict(r.metrics) for r in train.pipe(map(report, range(1, 9)), *kept)]
        for kept in (stages, again(stages))
    ]
    assert metrics[0] == metrics[1]


def test_pickled_collation_pads_in_the_same_way():
    examples = [np.ones(2), np.ones(3)]
    collate = train.collate_padded(-1.0)
    assert_same(again(collate)(examples), collate(examples))
