"""Batch normalisation by the statistics of all ranks is that of the whole batch."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, random, train, tree


def inputs(count, channels, spatial, dtype="float64", axis=1):
    shape = [count, channels, *spatial]
    x = np.asarray(random.normal(random.key(count), tuple(shape), "float64")) * 3 + 5
    return np.moveaxis(x, 1, axis).astype(dtype)


def layer_of(channels, **options):
    layer = nn.BatchNorm.init(None, channels, dtype=np.float64, **options)
    if layer.weight is None:
        return layer
    weight = np.linspace(0.5, 2.0, channels)
    return tree.replace(layer, weight=weight, bias=layer.bias if layer.bias is None else weight - 1)


def rows(x, rank, size):
    return np.array_split(x, size)[rank]


def loss(layer, x, mask):
    y, after = layer.train(x)
    return ops.sum(ops.sin(y) * mask), (y, after)


@given(
    size=st.integers(1, 4),
    count=st.integers(2, 6),
    channels=st.integers(1, 3),
    spatial=st.sampled_from([(), (2,), (2, 1)]),
    options=st.sampled_from(
        [{}, {"affine": False}, {"bias": False}, {"momentum": None}, {"track_running_stats": False},
         {"axis": -1}, {"eps": 1e-3}]
    ),
)  # fmt: skip
def test_values_derivatives_and_statistics_are_those_of_the_whole_batch(
    size, count, channels, spatial, options
):
    axis = options.get("axis", 1)
    x = inputs(count, channels, spatial, axis=axis if spatial else 1)
    layer = layer_of(channels, **options)
    mask = np.cos(np.arange(x.size)).reshape(x.shape)
    derivatives = fdbr.grad(loss, argnums=(0, 1), has_aux=True)
    affine = layer.weight is not None

    def whole_grad(layer, x, mask):
        if affine:
            return derivatives(layer, x, mask)
        grads, aux = fdbr.grad(loss, argnums=1, has_aux=True)(layer, x, mask)
        return (None, grads), aux

    (by_layer, by_x), (y, after) = whole_grad(layer, x, mask)

    def f(comm):
        own = d.sync_batch_norm(layer, comm)
        mine = rows(x, comm.rank, size), rows(mask, comm.rank, size)
        (by_own, by_mine), (out, successor) = whole_grad(own, *mine)
        by_own = None if by_own is None else d.all_reduce((by_own.weight, by_own.bias), comm)
        return by_own, by_mine, out, successor

    found = d.run_in_threads(f, size)
    for i, wanted in ((1, by_x), (2, y)):
        parts = np.concatenate([one[i] for one in found])
        np.testing.assert_allclose(parts, wanted, rtol=1e-9, atol=1e-9)
    for by_own, _, _, successor in found:
        if affine:
            np.testing.assert_allclose(by_own[0], by_layer.weight, rtol=1e-9, atol=1e-9)
        if layer.running_mean is not None:
            for name in ("running_mean", "running_var"):
                one, first = getattr(successor, name), getattr(found[0][3], name)
                np.testing.assert_allclose(one, getattr(after, name), rtol=1e-12)
                assert one.tobytes() == first.tobytes()
            assert successor.num_batches_tracked == after.num_batches_tracked


@pytest.mark.parametrize("dtype", ["float16", "float32", ml_dtypes.bfloat16])
def test_sums_are_taken_in_single_precision_at_least(dtype, xp):
    x = (inputs(24, 2, (8,)) + 40).astype(dtype)
    wanted = (x.astype(float) - x.astype(float).mean((0, 2), keepdims=True)) / x.astype(float).std(
        (0, 2), keepdims=True
    )

    def f(comm):
        layer = d.SyncBatchNorm.init(None, 2, comm=comm, eps=0.0, affine=False)
        layer = fdbr.tree.map(xp.asarray, layer)
        y, after = layer.train(xp.asarray(rows(x, comm.rank, 3)))
        assert y.dtype == x.dtype
        assert isinstance(after.running_mean, type(xp.zeros(1)))
        return fdbr.device_get(y).astype(float)

    if xp is not np and dtype is ml_dtypes.bfloat16:
        pytest.skip("the array module has no bfloat16")
    found = np.concatenate(d.run_in_threads(f, 3))
    scale = {"float16": 5e-3, "float32": 1e-5}.get(dtype, 4e-2)
    np.testing.assert_allclose(found, wanted, atol=scale)


def test_large_means_do_not_hide_small_variances():
    x = inputs(16, 1, ()) + 1e7
    whole, _ = nn.BatchNorm.init(None, 1, dtype=np.float64).train(x)

    def f(comm):
        layer = nn.BatchNorm.init(None, 1, dtype=np.float64)
        return d.sync_batch_norm(layer, comm).train(rows(x, comm.rank, 4))[0]

    np.testing.assert_allclose(np.concatenate(d.run_in_threads(f, 4)), whole, rtol=1e-7)


def test_it_works_jitted_and_in_second_derivatives():
    x = inputs(5, 2, ())
    layer = layer_of(2)

    def value(scale, x, layer):
        y, _ = layer.train(x * scale)
        return ops.sum(ops.sin(y) * x)

    def f(comm):
        own, mine = d.sync_batch_norm(layer, comm), rows(x, comm.rank, 3)
        jitted = fdbr.jit(fdbr.grad(value))
        eager = fdbr.grad(value)(1.5, mine, own)
        for _ in range(3):
            np.testing.assert_allclose(jitted(1.5, mine, own), eager, rtol=1e-9)
        second = fdbr.grad(lambda s: fdbr.grad(value)(s, mine, own))(1.5)
        return d.all_reduce(eager, comm), d.all_reduce(second, comm)

    slope = fdbr.grad(value)(1.5, x, layer)
    curvature = fdbr.grad(lambda s: fdbr.grad(value)(s, x, layer))(1.5)
    for one, other in d.run_in_threads(f, 3):
        np.testing.assert_allclose(one, slope, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(other, curvature, rtol=1e-8, atol=1e-10)


def test_models_are_converted_there_and_back():
    key = random.key(0)
    model = {
        "net": nn.Sequential(nn.Linear.init(key, 3, 2), nn.BatchNorm.init(None, 2), ops.relu),
        "other": (nn.BatchRenorm.init(None, 2), None),
    }
    comm = d.serial()
    synced = d.sync_batch_norm(model, comm)
    assert type(synced["net"].layers[1]) is d.SyncBatchNorm
    assert type(synced["other"][0]) is nn.BatchRenorm
    assert tree.paths(synced) == tree.paths(model)
    assert d.sync_batch_norm(synced, comm) == synced
    assert d.sync_batch_norm(synced, None) == model
    x = inputs(3, 2, (), "float32")
    np.testing.assert_array_equal(synced["net"].layers[1](x), model["net"].layers[1](x))
    with pytest.raises(TypeError, match="sync_batch_norm: comm must be a communicator"):
        d.sync_batch_norm(model, 3)


def test_wrong_inputs_are_refused():
    layer = d.SyncBatchNorm.init(None, 2, comm=d.serial())
    with pytest.raises(ValueError, match="axis 1 of x must be that of the 2 channels"):
        layer.train(np.zeros((3, 4), np.float32))
    with pytest.raises(TypeError, match="x must be real floating, not complex128"):
        layer.train(np.zeros((3, 2), complex))


def test_a_model_that_is_saved_fits_any_number_of_ranks(tmp_path):
    def save(comm):
        state = d.sync_batch_norm(layer_of(2), comm)
        state = state.train(inputs(4, 2, ()))[1]
        report = train.Report(1, 0, {}, state, train.Position(0, 1), 0.1)
        list(d.snapshot(tmp_path, comm)(iter([report])))
        return state.running_mean

    def load(comm):
        like = d.sync_batch_norm(layer_of(2), comm)
        found = d.resume(tmp_path, like, comm).state
        assert found.comm is comm
        return found.running_mean

    means = d.run_in_threads(save, 3)
    for mean in d.run_in_threads(load, 2):
        np.testing.assert_array_equal(mean, means[0])
    np.testing.assert_array_equal(train.resume(tmp_path, layer_of(2)).state.running_mean, means[0])


def test_buffers_of_all_ranks_are_averaged_and_nothing_else():
    def f(comm):
        layer = nn.BatchNorm.init(None, 2).finetuning()
        for _ in range(comm.rank + 1):
            _, layer = layer.train(inputs(4, 2, (), "float32") + comm.rank)
        return layer, d.all_reduce_buffers(layer, comm)

    found = d.run_in_threads(f, 2)
    mean = (found[0][0].running_mean + found[1][0].running_mean) / 2
    for rank, (before, after) in enumerate(found):
        np.testing.assert_allclose(after.running_mean, mean, rtol=1e-6)
        assert after.num_batches_tracked == rank + 1
        assert after.weight is before.weight
