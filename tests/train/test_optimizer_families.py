"""What holds for every optimizer: dtypes, trees, gradients that are missing, snapshots."""

import ml_dtypes
import numpy as np
import pytest

import fdbr
from fdbr import ops, train
from fdbr.testing import assert_allclose
from fdbr.train import optim

RATE = 0.01
NAMED = """
sgd adam adamw nadam nadamw adamax adamaxw amsgrad adabelief yogi radam adan lion sign_sgd rprop
rmsprop adagrad adadelta lars lamb fromage novograd sm3 adafactor optimistic_gradient_descent
optimistic_adam_v2 adabound amsbound msvag smorms3 asgd schedule_free_sgd schedule_free_adamw
muon shampoo
""".split()
ALL = {name: getattr(optim, name)(RATE) for name in NAMED} | {
    "adadelta": optim.adadelta(1.0, eps=1e-3),
    "lars": optim.lars(RATE, trust_coefficient=0.5),
    "polyak_sgd": optim.polyak_sgd(RATE),
    "lbfgs": optim.lbfgs(),
    "lbfgs backtracking": optim.lbfgs(
        linesearch=optim.scale_by_backtracking_linesearch(20, store_grad=True)
    ),
    "nonlinear_cg": optim.nonlinear_cg(),
    "fletcher-reeves": optim.nonlinear_cg(method="fletcher-reeves"),
    "sam": optim.sam(optim.sgd(RATE), optim.chain(optim.normalize(), optim.sgd(0.05))),
    "rmsprop centered": optim.rmsprop(RATE, centered=True, eps=1e-2),
    "shampoo in turns": optim.shampoo(RATE, update_period=3, max_preconditioner_dim=2),
    "muon, by Adam's rates": optim.muon(RATE, consistent_rms=0.2, adaptive=True),
}
SCHEDULED = [
    name for name in NAMED if name not in ("rprop", "schedule_free_sgd", "schedule_free_adamw")
]


def parameters(dtype="float32"):
    w, more = (np.linspace(*ends).astype(dtype) for ends in ((-1, 1, 6), (0.5, 1, 3)))
    return {"w": w.reshape(2, 3), "more": [more, 4], "still": np.ones(2, dtype)}


def loss(params):
    value = ((params["w"] - 0.5) ** 2).sum() + ((params["more"][0] + 0.25) ** 4).sum()
    return fdbr.ops.astype(value, "float32") if value.dtype.itemsize == 2 else value


def step(optimizer, params, state):
    value, grads = fdbr.value_and_grad(loss)(params)
    grads = {**grads, "still": None}
    extra = {"value": value, "grad": grads, "value_fn": loss}
    updates, state = optimizer.update(grads, state, params, **extra)
    return optim.apply_updates(params, updates), state, value


def run(optimizer, params, steps, step=step):
    state, values = optimizer.init(params), []
    for _ in range(steps):
        params, state, value = step(optimizer, params, state)
        values.append(float(value))
    return params, state, values


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_every_optimizer_goes_down_in_the_dtype_of_its_parameters(name, dtype):
    params, state, values = run(ALL[name], parameters(dtype), 12)
    assert min(values) < values[0]
    assert {params[key].dtype for key in ("w", "still")} == {np.dtype(dtype)}
    assert params["more"][0].dtype == dtype
    assert params["more"][1] == 4
    for leaf in fdbr.tree.leaves(state):
        if isinstance(leaf, np.ndarray) and leaf.ndim:
            assert leaf.dtype in (np.dtype(dtype), np.dtype("float32"))
            assert not leaf.flags.writeable


@pytest.mark.parametrize("name", ALL)
def test_arrays_without_elements_are_parameters_of_every_optimizer(name):
    params = {"w": np.zeros((0, 3), "float32"), "v": np.zeros((2, 0)), "b": np.ones(2)}

    def loss(params):
        return sum((leaf**2).sum() for leaf in params.values())

    state = ALL[name].init(params)
    for _ in range(4):
        value, grads = fdbr.value_and_grad(loss)(params)
        extra = {"value": value, "grad": grads, "value_fn": loss}
        updates, state = ALL[name].update(grads, state, params, **extra)
        params = optim.apply_updates(params, updates)
    assert [(leaf.shape, str(leaf.dtype)) for leaf in params.values()] == [
        ((0, 3), "float32"),
        ((2, 0), "float64"),
        ((2,), "float64"),
    ]
    assert (params["b"] < 1).all()


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("rprop", "yogi")])
def test_complex_gradients_that_are_turned_iteration_the_steps(name):
    rng, iteration = np.random.default_rng(0), np.exp(0.7j)
    start, *grads = (rng.normal(size=(5, 2, 3)) + 1j * rng.normal(size=(5, 2, 3))).copy()
    ends = []
    for factor in (1, iteration):
        params, state = {"w": start * factor}, ALL[name].init({"w": start * factor})
        for g in grads:
            updates, state = ALL[name].update({"w": g * factor}, state, params)
            params = optim.apply_updates(params, updates)
        ends.append(params["w"])
    assert np.isfinite(ends[0]).all()
    assert_allclose(ends[1], ends[0] * iteration, rtol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_what_has_no_gradient_stays_the_very_object(name):
    params = parameters()
    new, _, _ = run(ALL[name], params, 3)
    assert new["still"] is params["still"]


@pytest.mark.parametrize("name", ALL)
def test_the_state_of_every_optimizer_is_saved_and_loaded(name, tmp_path):
    params, state, _ = run(ALL[name], parameters(), 3)
    train.save(tmp_path / "state", state)
    found = train.load(tmp_path / "state", like=state)
    assert_allclose(found, state)
    ours, theirs = (step(ALL[name], params, each)[0] for each in (found, state))
    np.testing.assert_array_equal(ours["w"], theirs["w"])


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_rate_may_be_a_schedule_or_an_array(name):
    make = getattr(optim, name)
    results = [
        run(make(rate), parameters("float64"), 3)[0]
        for rate in (0.01, lambda count: 0.01, np.asarray(0.01))
    ]
    assert_allclose(results[1], results[0], rtol=1e-12)
    assert_allclose(results[2], results[0], rtol=1e-12)


@pytest.mark.parametrize("name", ["lars", "adafactor", "shampoo", "muon", "sm3", "adan"])
def test_further_rules_run_on_every_array_module(name, xp, to_numpy):
    start = parameters("float64")
    there = fdbr.tree.map(lambda x: x if isinstance(x, int) else xp.asarray(x), start)
    ours, _, _ = run(ALL[name], there, 4)
    theirs, _, _ = run(ALL[name], start, 4)
    np.testing.assert_allclose(to_numpy(ours["w"]), theirs["w"], rtol=1e-9)


def test_the_mean_of_asgd_is_that_of_the_parameters_after_t0():
    optimizer, params, seen = optim.asgd(0.1, t0=2.0), {"w": np.ones(2)}, []
    state = optimizer.init(params)
    for _ in range(6):
        updates, state = optimizer.update({"w": params["w"]}, state, params)
        params = optim.apply_updates(params, updates)
        seen.append(params["w"])
    assert_allclose(state.ax["w"], np.mean(seen[3:], axis=0))


def test_polyak_and_line_searches_say_what_they_lack():
    for optimizer, message in (
        (optim.polyak_sgd(), r"scale_by_polyak: it needs the value.*value=value"),
        (optim.lbfgs(), r"scale_by_zoom_linesearch: it needs the value and the gradient"),
        (optim.nonlinear_cg(), r"scale_by_zoom_linesearch: it needs the value and the gradient"),
    ):
        with pytest.raises(TypeError, match=message):
            optimizer.update(1.0, optimizer.init(1.0), 1.0)


def test_sam_in_one_step_is_sam_in_two():
    adversary = optim.chain(optim.normalize(), optim.sgd(0.05))
    slope = fdbr.grad(lambda p: (p**4).sum())
    two = optim.sam(optim.sgd(0.1), adversary)
    one = optim.sam(optim.sgd(0.1), adversary, opaque_mode=True)
    start = np.array([1.0, -0.5])
    params, state = start, two.init(start)
    for _ in range(2):
        updates, state = two.update(slope(params), state, params)
        params = optim.apply_updates(params, updates)
    updates, _ = one.update(slope(start), one.init(start), start, grad_fn=lambda p, i: slope(p))
    assert_allclose(params, optim.apply_updates(start, updates), rtol=1e-12)


def test_the_value_and_the_gradient_of_a_line_search_are_used_again():
    calls = []

    def objective(x):
        calls.append(x)
        return (x - 1.0) ** 2

    optimizer, x = optim.lbfgs(), np.float64(3.0)
    slope, state = optim.value_and_grad_from_state(objective), optimizer.init(x)
    value, grad = slope(x, state=state)
    extra = {"value": value, "grad": grad, "value_fn": objective}
    updates, state = optimizer.update(grad, state, x, **extra)
    x = optim.apply_updates(x, updates)
    before = len(calls)
    value, grad = slope(x, state=state)
    assert len(calls) == before
    assert_allclose(value, (x - 1.0) ** 2, atol=1e-15)


SEARCHES = {
    "lbfgs": optim.lbfgs,
    "nonlinear_cg": optim.nonlinear_cg,
    "backtracking": lambda: optim.chain(
        optim.sgd(1.0), optim.scale_by_backtracking_linesearch(20, store_grad=True)
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_along_complex_numbers_is_that_along_their_two_parts(name):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(8, 3)) + 1j * rng.normal(size=(8, 3))
    b = rng.normal(size=8) + 1j * rng.normal(size=8)

    def loss(p):
        return ops.sum(abs(a @ p["z"] - b) ** 2) + ops.sum(abs(p["z"] - p["x"]) ** 4)

    def of_parts(p):
        return loss({"z": p["re"] + 1j * p["im"], "x": p["x"]})

    def found(f, params):
        optimizer = SEARCHES[name]()
        state = optimizer.init(params)
        compute = optim.value_and_grad_from_state(f)
        for _ in range(12):
            value, grads = compute(params, state=state)
            uphill = fdbr.tree.map(np.conj, grads)
            extra = {"value": value, "grad": uphill, "value_fn": f}
            updates, state = optimizer.update(uphill, state, params, **extra)
            params = optim.apply_updates(params, updates)
        return params

    whole = found(loss, {"z": np.zeros(3, complex), "x": np.ones(3)})
    parts = found(of_parts, {"re": np.zeros(3), "im": np.zeros(3), "x": np.ones(3)})
    assert loss(whole) < 0.9 * loss({"z": np.zeros(3, complex), "x": np.ones(3)})
    np.testing.assert_allclose(whole["z"], parts["re"] + 1j * parts["im"], rtol=1e-7)
