"""Recurrent networks whose steps are kernels, beside their steps with NumPy."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.ops.nn.recurrent.stages import run_steps

LAYERS = {
    "RNN": lambda key: nn.RNN.init(key, 5, 19),
    "relu": lambda key: nn.RNN.init(key, 5, 19, nonlinearity="relu"),
    "GRU": lambda key: nn.GRU.init(key, 5, 19, bidirectional=True),
    "LSTM": lambda key: nn.LSTM.init(key, 5, 19, 2, bidirectional=True),
    "one": lambda key: nn.LSTM.init(key, 5, 1),
    "bare": lambda key: nn.GRU.init(key, 5, 16, bias=False),
}
LENGTHS = (7, 2, 9, 9, 1)


def layer_of(name, dtype):
    return tree.map(lambda x: ops.astype(x, dtype), LAYERS[name](random.key(0)))


def sequences(dtype):
    generator = np.random.default_rng(0)
    return [generator.standard_normal((n, 5)).astype(dtype) for n in LENGTHS]


def loss(layer, xs):
    ys, ends = layer(xs)
    return sum(ops.sum(y**2) for y in ys) + sum(ops.sum(ops.sin(x)) for x in tree.leaves(ends))


@pytest.fixture(params=["float32", "float64"])
def close(request, monkeypatch):
    """A function that asserts that kernels give what NumPy gives."""
    dtype = request.param
    exact = 1e-5 if dtype == "float32" else 1e-12

    def same(make):
        found = tree.leaves(make(dtype))
        monkeypatch.setattr(run_steps, "host", run_steps.definition)
        with np.errstate(under="ignore"):
            wanted = tree.leaves(make(dtype))
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=exact, atol=exact * max(1.0, abs(y).max()))

    return same


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_give_what_numpy_gives(name, close):
    close(lambda dtype: layer_of(name, dtype)(sequences(dtype)))


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_give_the_gradients_that_numpy_gives(name, close):
    close(lambda dtype: fdbr.grad(loss, (0, 1))(layer_of(name, dtype), sequences(dtype)))


@pytest.mark.parametrize("name", ["GRU", "LSTM"])
def test_kernels_give_the_second_derivatives_that_numpy_gives(name, close):
    def along(dtype):
        layer, xs = layer_of(name, dtype), sequences(dtype)
        return fdbr.jvp(lambda xs: fdbr.grad(loss)(layer, xs), (xs,), (xs,))

    close(along)


def test_cotangents_that_show_one_number_everywhere_are_taken(close):
    def total(layer, xs):
        return sum(ops.sum(y) for y in layer(xs)[0])

    close(lambda dtype: fdbr.grad(total)(layer_of("LSTM", dtype), sequences(dtype)))


def test_a_batch_with_its_own_weights_is_computed_by_numpy(close):
    def each(dtype):
        layers = tree.map(lambda x: np.stack([x, 2 * x]), layer_of("LSTM", dtype))
        x = np.stack(sequences(dtype)[2:4])
        return fdbr.vmap(lambda layer, x: layer(x[:, None])[0])(layers, x)

    close(each)


def test_large_states_are_shared_among_threads(close):
    def large(dtype):
        layer = nn.LSTM.init(random.key(1), 8, 150, dtype=dtype)
        x = np.random.default_rng(0).standard_normal((3, 37, 8)).astype(dtype)
        return fdbr.grad(lambda layer: ops.sum(layer(x)[0] ** 2))(layer)

    close(large)
