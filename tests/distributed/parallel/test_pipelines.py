"""Schedules keep their laws, and a pipeline gives the loss and gradients of one process."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, random, tree

NAMES = st.sampled_from(["gpipe", "1f1b"])


@given(name=NAMES, stages=st.integers(1, 6), count=st.integers(1, 12))
def test_schedules_do_all_once_in_an_order_that_ends_and_wait_as_long_as_is_known(
    name, stages, count
):
    plan = d.schedule(name, stages, count)
    for rank, tasks in enumerate(plan.ranks):
        assert sorted(tasks) == sorted(
            (k, i) for k in ("forward", "backward") for i in range(count)
        )
        bound = count if name == "gpipe" else min(stages - rank, count)
        assert plan.live(rank) == bound
    found = plan.timeline()
    assert abs(found.bubble - (stages - 1) / (count + stages - 1)) < 1e-12
    assert found.length == 3 * (count + stages - 1)
    at = {(k, i, r): (a, b) for r, row in enumerate(found.tasks) for k, i, a, b in row}
    for (kind, i, rank), (start, _) in at.items():
        before = rank - 1 if kind == "forward" else rank + 1
        if 0 <= before < stages:
            assert at[kind, i, before][1] <= start
        if kind == "backward":
            assert at["forward", i, rank][1] <= start


def layers(count):
    keys = random.split(random.key(0), count)
    return [nn.Linear.init(key, 3, 3, dtype=np.float64) for key in keys]


def apply(layer, x):
    return ops.tanh(layer(x))


def mean_loss(out, y):
    return ops.mean(ops.sum((out - y) ** 2, axis=-1))


def data(count=10):
    return [np.asarray(random.normal(random.key(i), (count, 3), "float64")) for i in (1, 2)]


def close(found, wanted):
    assert tree.structure(found) == tree.structure(wanted)
    for a, b in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def whole(models, x, y):
    def f(models, x, y):
        for layer in models:
            x = apply(layer, x)
        return mean_loss(x, y)

    return fdbr.value_and_grad(f)(models, x, y)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("order", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("size", "count"), [(1, 2), (2, 3), (3, 4), (4, 2)])
def test_a_pipeline_has_loss_and_gradients_of_one_process(size, count, order, checkpoint):
    models = layers(size)
    x, y = data()
    value, grads = whole(models, x, y)

    def f(comm):
        step = d.pipeline(
            apply, mean_loss, comm, micro_batches=count, order=order, checkpoint=checkpoint
        )
        return step(models[comm.rank], x, y)

    for rank, (found, derivatives) in enumerate(d.run_in_threads(f, size)):
        assert abs(found - value) < 1e-12
        close(derivatives, grads[rank])


def test_a_pipeline_within_data_parallelism():
    models = layers(2)
    x, y = data(8)
    value, grads = whole(models, x, y)

    def f(comm):
        stages = comm.split(comm.rank // 2)
        same = comm.split(comm.rank % 2)
        own = [np.array_split(batch, same.size)[same.rank] for batch in (x, y)]
        step = d.pipeline(apply, mean_loss, stages, micro_batches=2)
        return d.all_reduce(step(models[stages.rank], *own), same, "mean")

    for rank, (found, derivatives) in enumerate(d.run_in_threads(f, 4)):
        assert abs(found - value) < 1e-12
        close(derivatives, grads[rank % 2])


def test_the_timeline_is_drawn(tmp_path):
    d.schedule("1f1b", 3, 4).draw(tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes()[:4] == b"\x89PNG"


def test_errors_say_what_to_do():
    comm = d.serial()
    with pytest.raises(ValueError, match="must be 'gpipe' or '1f1b', got 'zb'"):
        d.pipeline(apply, mean_loss, comm, micro_batches=2, order="zb")
    with pytest.raises(ValueError, match="not one of 1 ranks that do each of 2"):
        d.pipeline(apply, mean_loss, comm, micro_batches=2, order=d.schedule("gpipe", 2, 2))
    bad = d.Schedule("bad", ((("backward", 0), ("forward", 0)),))
    with pytest.raises(ValueError, match="wait for each other"):
        d.pipeline(apply, mean_loss, comm, micro_batches=1, order=bad)
    step = d.pipeline(apply, mean_loss, comm, micro_batches=11)
    with pytest.raises(ValueError, match="10 examples cannot be divided into 11"):
        step(layers(1)[0], *data())
