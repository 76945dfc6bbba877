"""Layers whose weights are divided among ranks, on arrays of every array module."""

import numpy as np
import pytest

import fdbr
from fdbr import distributed as d
from fdbr import ops
from fdbr.testing import assert_allclose


def on(module, layer):
    return fdbr.tree.map(lambda leaf: module.asarray(leaf) if leaf.shape else leaf, layer)


def linear(module, comm):
    up, down = (
        on(module, d.TensorLinear.init(fdbr.random.key(i), m, n, comm=comm, split=s))
        for i, (m, n, s) in enumerate([(3, 5, "column"), (5, 3, "row")])
    )
    x = module.asarray(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3))
    return (up, down), lambda layers: (layers[1](ops.tanh(layers[0](x))) ** 2).sum()


def embedding(module, comm):
    layer = on(module, d.TensorEmbed.init(fdbr.random.key(0), 5, 4, comm=comm))
    places = module.asarray(np.array([0, 4, 4, 2]))
    return layer, lambda layer: (layer(places) ** 3).sum()


def attention(module, comm):
    layer = on(module, d.TensorAttention.init(fdbr.random.key(0), 8, 4, comm=comm))
    x = module.asarray(np.sin(np.arange(2 * 3 * 8, dtype=np.float32)).reshape(2, 3, 8))
    return layer, lambda layer: (layer(x, causal=True) ** 2).sum()


def entropy(module, comm):
    logits = module.asarray(np.array([[1.0, 2.0], [0.5, -1.0]]) + comm.rank)
    labels = module.asarray(np.array([3, 0]))
    return logits, lambda x: d.tensor_softmax_cross_entropy(x, labels, comm, classes=4).sum()


@pytest.mark.parametrize("of", [linear, embedding, attention, entropy])
def test_values_and_gradients_are_those_of_numpy(xp, to_numpy, of):
    def run(module):
        def f(comm):
            layer, loss = of(module, comm)
            return fdbr.tree.leaves(fdbr.value_and_grad(loss)(layer))

        return d.run_in_threads(f, 2)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        assert_allclose(list(map(to_numpy, mine)), theirs, rtol=2e-5, atol=1e-6)
