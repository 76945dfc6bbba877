"""A batch divided among the devices of one process gives what it gives undivided."""

import threading

import numpy as np
import pytest
import shadow
from distributed.standing_in import several_devices
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, train
from fdbr.testing import assert_allclose


def loss(model, batch):
    logits = ops.tanh(batch["x"] @ model["w"] + model["b"])
    losses = ((logits - batch["y"][:, None]) ** 2).mean(axis=1)
    return losses.mean(), {"losses": losses, "largest": model["b"] * 2.0, "n": len(losses)}


RULES = (("mean", {"losses": "concatenate", "largest": "first", "n": "sum"}), "mean")


def made(n, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    model = {"w": rng.normal(size=(3, 2)), "b": rng.normal(size=2), "none": None}
    batch = {"x": rng.normal(size=(n, 3)), "y": rng.normal(size=n)}
    return fdbr.tree.map(lambda a: a.astype(dtype), (model, batch))


LISTS = [
    ["cpu"],
    ["cpu"] * 2,
    ["cpu"] * 3,
    [0, 1],
    [1, 0, 2, 3],
    [3, 3],
    ["cpu", 1],
    [2, "cpu", 0],
    [shadow.Device(1), 0],
]


@given(st.sampled_from(LISTS), st.integers(1, 9), st.sampled_from([0, None, "cpu"]), st.booleans())
def test_a_divided_batch_gives_what_the_undivided_one_gives(devices, n, where, locked):
    f = fdbr.value_and_grad(loss, has_aux=True)
    expected = f(*made(n))
    with several_devices():
        model, batch = made(n)
        if where != "cpu":
            model, batch = fdbr.device_put((model, batch), where)
        elif locked:
            model = fdbr.tree.map(fdbr.backend.lock, model)
        parallel = d.data_parallel(f, devices, out=RULES)
        found = parallel(model, batch)
        again = parallel(model, batch)
        first = devices[0]
        for leaf in fdbr.tree.leaves((found[0][0], found[0][1]["losses"], found[1])):
            number = getattr(getattr(leaf, "device", None), "id", None)
            assert number == (None if first == "cpu" else getattr(first, "id", first))
        found, again = fdbr.tree.map(shadow.to_numpy, (found, again))
    assert fdbr.tree.structure(found) == fdbr.tree.structure(expected)
    assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    for a, b in zip(fdbr.tree.leaves(found), fdbr.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)  # to the last bit
    assert found[0][1]["n"] == n


@given(st.integers(1, 7), st.integers(1, 4), st.sampled_from(["float16", "float32", "complex128"]))
def test_dtypes_stay_what_they_are(n, count, dtype):
    w, x = np.ones(3, dtype), np.arange(3.0 * n).reshape(n, 3).astype(dtype) / (3 * n)

    def f(w, x):
        return {"mean": (x * w).mean(axis=0), "sum": x.sum(axis=0), "rows": x[:, :1], "all": x * 2}

    rules = {"mean": "mean", "sum": "sum", "rows": "concatenate", "all": "concatenate"}
    found = d.data_parallel(f, ["cpu"] * count, out=rules)(w, x)
    for name, leaf in f(w, x).items():
        assert found[name].dtype == dtype
        assert (
            not found[name].flags.writeable or rules[name] == "concatenate" or count == 1 or n == 1
        )
        np.testing.assert_allclose(found[name], leaf, rtol=4e-3 if dtype == "float16" else 1e-6)


def test_an_empty_batch_is_a_part_by_itself():
    f = d.data_parallel(lambda w, x: ops.sum(x, axis=0), ["cpu", "cpu"])
    assert f(1.0, np.ones((0, 2))).tolist() == [0, 0]


def test_devices_beyond_the_number_of_examples_have_nothing_to_do():
    seen = []
    f = d.data_parallel(lambda w, x: seen.append(len(x)) or x.mean(), ["cpu"] * 5)
    assert f(1.0, np.arange(3.0)) == 1.0
    assert seen == [1, 1, 1]


def test_parts_differ_by_one_example_at_most():
    sizes = d.data_parallel(lambda w, x: np.array([len(x)]), ["cpu"] * 3, out="concatenate")
    assert sizes(0, np.ones(8)).tolist() == [3, 3, 2]


def test_the_devices_work_at_the_same_time():
    both = threading.Barrier(2, timeout=10)

    def f(w, x):
        both.wait()
        return x.mean()

    assert d.data_parallel(f, ["cpu", "cpu"])(None, np.arange(4.0)) == 1.5


def test_each_device_is_the_current_one_for_its_part():
    with several_devices():

        def f(w, x):
            assert w.device == x.device == shadow.Device(shadow.devices.current())
            return shadow.module.zeros(1) + x.sum()

        w = fdbr.device_put(np.ones(1), 2)
        assert d.data_parallel(f, [1, 3], out="sum")(w, np.arange(4.0)).get() == [6.0]


# --- copies -----------------------------------------------------------------------------


def test_parameters_that_nobody_can_write_to_are_copied_once(monkeypatch):
    with several_devices():
        copied = []
        real = fdbr.distributed.devices.device_put
        monkeypatch.setattr(
            "fdbr.distributed.devices.device_put",
            lambda leaf, device: copied.append((leaf.shape, device)) or real(leaf, device),
        )
        f = d.data_parallel(lambda w, x: (x @ w).mean(), [0, 1])
        w, x = fdbr.backend.lock(np.ones((3, 2))), np.ones((4, 3))
        for _ in range(3):
            f(w, x)
        assert sorted(c for c in copied if c[0] == (3, 2)) == [((3, 2), 0), ((3, 2), 1)]
        f(fdbr.backend.lock(np.ones((3, 2))), x)
        assert len([c for c in copied if c[0] == (3, 2)]) == 4


def test_parameters_that_are_written_to_are_never_stale():
    with several_devices():
        f = d.data_parallel(lambda w, x: (x @ w).sum(), [0, 1], out="sum")
        w, x = np.ones(3), np.ones((4, 3))
        assert f(w, x).get() == 12
        w[:] = 2
        assert f(w, x).get() == 24
        there = fdbr.device_put(w, 0)
        assert f(there, x).get() == 24
        with shadow.Device(0):
            there[...] = 3
        assert f(there, x).get() == 36


def test_nothing_is_kept_of_parameters_that_are_not_given_any_more():
    with several_devices():
        f = d.data_parallel(lambda w, x: (x @ w).sum(), [0, 1], out="sum")
        x = np.ones((4, 3))
        for i in range(50):  # whose addresses come again
            w = fdbr.backend.lock(np.full(3, float(i)))
            assert f(w, x).get() == 12 * i


# --- arguments --------------------------------------------------------------------------


def test_axes_of_arguments_can_be_given():
    def f(x, w, y, *, scale):
        return (x @ w * y[:, None]).mean() * scale

    rng = np.random.default_rng(0)
    x, w, y = rng.normal(size=(5, 2)), rng.normal(size=(2, 3)), rng.normal(size=5)
    divided = d.data_parallel(f, ["cpu", "cpu"], in_axes=(0, None, 0))
    assert_allclose(divided(x, w, y, scale=3.0), f(x, w, y, scale=3.0), rtol=1e-12)
    columns = d.data_parallel(
        lambda w, x: x.sum(axis=0), ["cpu"] * 2, in_axes=(None, 1), out="concatenate"
    )
    assert columns(w, x.T).tolist() == x.T.sum(axis=0).tolist()


def test_it_is_differentiable_itself():
    model, batch = made(5)
    mean = d.data_parallel(lambda m, b: loss(m, b)[0], ["cpu"] * 3)

    def whole(m, b):
        return loss(m, b)[0]

    assert_allclose(fdbr.grad(mean)(model, batch), fdbr.grad(whole)(model, batch), rtol=1e-12)
    assert_allclose(fdbr.jit(mean)(model, batch), whole(model, batch), rtol=1e-12)
    v = {"w": np.ones((3, 2)), "b": np.ones(2), "none": None}
    assert_allclose(
        fdbr.hvp(mean, (model, batch), (v, fdbr.tree.map(np.zeros_like, batch))),
        fdbr.hvp(whole, (model, batch), (v, fdbr.tree.map(np.zeros_like, batch))),
        rtol=1e-10,
    )


def test_jitted_functions_are_divided_too():
    f = fdbr.jit(fdbr.value_and_grad(loss, has_aux=True))
    parallel = d.data_parallel(f, ["cpu", "cpu"], out=RULES)
    for n in (4, 5, 4):
        assert_allclose(parallel(*made(n)), f(*made(n)), rtol=1e-12)


def test_training_on_two_devices_gives_the_parameters_of_one():
    def trained(gradient):
        model, opt = nn.Linear.init(fdbr.random.key(0), 3, 2, dtype="float64"), None
        optimizer = train.optim.adam(0.1)
        opt = optimizer.init(model)
        for seed in range(5):
            _, batch = made(7, seed=seed)
            grads = gradient(model, batch)
            updates, opt = optimizer.update(grads, opt, model)
            model = train.optim.apply_updates(model, updates)
        return model

    gradient = fdbr.grad(lambda m, b: ((m(b["x"]).sum(axis=1) - b["y"]) ** 2).mean())
    both = d.data_parallel(gradient, ["cpu", "cpu"])
    assert_allclose(trained(both), trained(gradient), rtol=1e-9)


def test_a_whole_step_is_divided_by_its_communicator():
    def step(state, batch, comm):
        value, grads = fdbr.value_and_grad(lambda w, x: ((x @ w) ** 2).mean())(state, batch)
        n = d.all_reduce(float(len(batch)), comm)
        grads = d.all_reduce(grads * (len(batch) / n), comm)
        return state - 0.1 * np.sign(grads), {"loss": value, "devices": comm.size}

    def whole(w, x):
        value, grads = fdbr.value_and_grad(lambda w, x: ((x @ w) ** 2).mean())(w, x)
        return w - 0.1 * np.sign(grads), {"loss": value, "devices": 1}

    w, x = np.array([1.0, -2.0, 0.5]), np.random.default_rng(0).normal(size=(7, 3))
    rules = ("first", {"loss": "mean", "devices": "first"})
    with several_devices():
        for devices in (["cpu"] * 3, [0, 1], [1]):
            found = d.data_parallel(step, devices, out=rules)(w, x)
            found = fdbr.tree.map(shadow.to_numpy, found)
            assert found[1].pop("devices") == len(devices)
            expected = whole(w, x)
            assert expected[1].pop("devices") == 1
            assert_allclose(found, expected, rtol=1e-12)


# --- errors -----------------------------------------------------------------------------


def test_the_error_of_a_part_is_raised_as_it_is():
    def f(w, x):
        if x[0] > 1:
            raise KeyError("spam")
        return x.mean()

    with pytest.raises(KeyError, match="spam"):
        d.data_parallel(f, ["cpu", "cpu"])(None, np.arange(4.0))


@pytest.mark.parametrize(
    ("devices", "kind", "text"),
    [
        ("cpu", TypeError, r"devices must be a sequence .* not 'cpu'"),
        (0, TypeError, "devices must be a sequence"),
        ([], ValueError, "devices is empty"),
        (["cpu", "gpu"], TypeError, r"devices\[1\] must be 'cpu', the number .* not 'gpu'"),
        ([1.5], TypeError, r"devices\[0\] must be .* not 'float'"),
        ([0, 4], ValueError, r"devices\[1\] is 4, but this machine has 4 GPUs"),
        ([-1], ValueError, r"devices\[0\] is -1"),
    ],
)
def test_wrong_devices_are_named(devices, kind, text):
    with several_devices(), pytest.raises(kind, match=f"fdbr.distributed.data_parallel: {text}"):
        d.data_parallel(fdbr.grad(loss), devices)


def test_a_gpu_without_cupy_is_an_error(monkeypatch):
    def none():
        raise ImportError("no cupy")

    monkeypatch.setattr(fdbr.core.devices, "accelerator", none)
    with pytest.raises(ImportError, match=r"data_parallel: devices\[1\] 0 is a GPU, which needs"):
        d.data_parallel(fdbr.grad(loss), ["cpu", 0])


def total(w, x):
    return {"n": len(x), "mean": x.mean(), "flag": x > 0}


@pytest.mark.parametrize(
    ("args", "options", "kind", "text"),
    [
        ((1.0,), {}, ValueError, "no argument of total has examples"),
        ((), {}, ValueError, "no argument of total has examples"),
        ((1.0, 2.0), {}, ValueError, "argument 1 is float 2.0, which has no axis 0"),
        ((1.0, {"a": np.ones(())}), {}, ValueError, r"argument 1 at .*a.* is float64\[\]"),
        ((1.0, np.ones(3), np.ones(2)), {}, ValueError, "3 in argument 1, 2 in argument 2"),
        ((1.0, np.ones(3)), {"in_axes": (0,)}, ValueError, "for each of 2 positional"),
        ((1.0, np.ones(3)), {"in_axes": (None, -1)}, ValueError, "got -1"),
        ((1.0, np.ones(3)), {}, TypeError, r"flag.* is bool\[2\], which has no mean"),
        (
            (1.0, np.ones(3)),
            {"out": {"flag": "first", "n": "mean", "mean": "mean"}},
            TypeError,
            "is int 2, which has no mean; with out= give 'sum'",
        ),
        ((1.0, np.ones(3)), {"out": "sum"}, TypeError, r"flag.* is bool\[2\], which has no sum"),
        ((1.0, np.ones(3)), {"out": "concatenate"}, ValueError, "has no axis along which"),
        ((1.0, np.ones(3)), {"out": {"n": "sum"}}, ValueError, "is no prefix of the result"),
    ],
)
def test_wrong_arguments_are_named(args, options, kind, text):
    with pytest.raises(kind, match=f"fdbr.distributed.data_parallel: .*{text}"):
        d.data_parallel(total, ["cpu", "cpu"], **options)(*args)


def test_wrong_functions_and_rules_are_named():
    with pytest.raises(TypeError, match="data_parallel: f must be a function"):
        d.data_parallel(3, ["cpu"])
    with pytest.raises(ValueError, match=r"out must consist of .* got 'average'"):
        d.data_parallel(total, ["cpu"], out={"n": "average"})
    with pytest.raises(ValueError, match="different structures"):
        d.data_parallel(lambda w, x: [x] if x[0] else x, ["cpu"] * 2)(0, np.arange(2.0))
