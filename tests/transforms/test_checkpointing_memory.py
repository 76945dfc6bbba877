"""How much memory checkpoint saves; counts of bytes, the same on every run."""

import tracemalloc

import numpy as np
import pytest

import fdbr
from fdbr import backend, nn, ops, tree
from fdbr.testing import assert_allclose

pytestmark = pytest.mark.usefixtures("two_devices")


def bits(values):
    return [np.asarray(leaf).tobytes() for leaf in tree.leaves(values)]


def peak(thunk):
    """The most memory that a call held at once, in bytes, and its result."""
    thunk()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        out = thunk()
        return tracemalloc.get_traced_memory()[1] - before, out
    finally:
        tracemalloc.stop()


LABELS = np.arange(8192) % 8
LOSSES = {
    "the mean of squares": lambda h: ops.mean(h * h),
    "the sum": ops.sum,
    "the cross entropy": lambda h: ops.softmax_cross_entropy(h, LABELS[: len(h)]),
}


def network(activation, depth=64, width=8, rows=1024, layer=lambda h, w: h @ w, last=None):
    """The loss of an MLP as a function of its weights and of what is done with its blocks."""
    rng = np.random.default_rng(0)
    weights = [backend.lock(rng.normal(size=(width, width)) / width**0.5) for _ in range(depth)]
    x = backend.lock(rng.normal(size=(rows, width)))
    last = last or LOSSES["the mean of squares"]

    def block(weights, h):
        for weight in weights:
            h = activation(layer(h, weight))
        return h

    def loss(weights, size, wrap):
        h = x
        for start in range(0, depth, size):
            h = wrap(block)(weights[start : start + size], h)
        return last(h)

    return loss, weights, x.nbytes


LAYERS = {
    "a product": lambda h, weight: h @ weight,
    "a linear layer": ops.linear,
    "one with a bias": lambda h, weight: ops.linear(h, weight, weight[0]),
}
ACTIVATIONS = {"tanh": ops.tanh, "relu": ops.relu, "sigmoid": ops.sigmoid, "gelu": ops.gelu}
CASES = [
    *((name, "a linear layer", last) for name in ACTIVATIONS for last in LOSSES),
    *((name, layer, "the sum") for name in ACTIVATIONS for layer in LAYERS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "layer", "last"), sorted(set(CASES)))
def test_sixty_four_layers_in_blocks_of_eight_need_a_fourth(activation, layer, last):
    loss, weights, unit = network(
        ACTIVATIONS[activation], rows=8192, layer=LAYERS[layer], last=LOSSES[last]
    )
    plain, expected = peak(lambda: fdbr.grad(loss)(weights, 8, lambda f: f))
    saving, found = peak(lambda: fdbr.grad(loss)(weights, 8, fdbr.checkpoint))
    assert plain > 64 * unit
    assert saving * 4 < plain
    assert bits(found) == bits(expected)


@pytest.mark.parametrize(
    ("activation", "fold"), [(ops.tanh, 3.6), (ops.relu, 3.6), (ops.gelu, 4.5)]
)
def test_small_arrays_need_little_more_for_they_are_not_divided(activation, fold):
    loss, weights, _ = network(activation)
    plain, expected = peak(lambda: fdbr.grad(loss)(weights, 8, lambda f: f))
    saving, found = peak(lambda: fdbr.grad(loss)(weights, 8, fdbr.checkpoint))
    assert saving * fold < plain
    assert bits(found) == bits(expected)


def test_sequential_layers_need_a_fourth_too():
    rng = np.random.default_rng(0)
    x = backend.lock(rng.normal(size=(8192, 8)))
    layers = []
    for _ in range(64):
        layers += [nn.Linear(rng.normal(size=(8, 8)) / 8**0.5, np.zeros(8)), ops.relu]
    model = backend.device_get(nn.Sequential(*layers))

    def loss(model, wrap):
        h = x
        for start in range(0, len(model), 16):
            h = wrap(lambda block, h: block(h))(model[start : start + 16], h)
        return ops.mean(h * h)

    plain, expected = peak(lambda: fdbr.grad(loss)(model, lambda f: f))
    saving, found = peak(lambda: fdbr.grad(loss)(model, fdbr.checkpoint))
    assert saving * 4 < plain
    assert bits(found) == bits(expected)


def ones(weights):
    return [np.ones_like(weight) for weight in weights]


SAVING = {
    "hvp": lambda f, weights: fdbr.hvp(f, (weights,), (ones(weights),)),
    "grad of jvp": lambda f, weights: fdbr.grad(lambda w: fdbr.jvp(f, (w,), (ones(weights),))[1])(
        weights
    ),
    "vmap of grad": lambda f, weights: fdbr.vmap(
        lambda s: fdbr.grad(lambda weights: f([s * w for w in weights]))(weights)
    )(np.array([1.0, 1.1])),
    "grad of vmap": lambda f, weights: fdbr.grad(
        lambda weights: ops.sum(
            fdbr.vmap(lambda s: f([s * w for w in weights]))(np.array([1.0, 1.1]))
        )
    )(weights),
}


@pytest.mark.parametrize("name", SAVING)
def test_memory_is_saved_under_other_transformations(name):
    loss, weights, _ = network(ops.tanh)
    use = SAVING[name]
    plain, expected = peak(lambda: use(lambda w: loss(w, 8, lambda f: f), weights))
    saving, found = peak(lambda: use(lambda w: loss(w, 8, fdbr.checkpoint), weights))
    assert saving * 3 < plain
    assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


def test_nested_blocks_need_less_still():
    loss, weights, unit = network(ops.tanh)

    def nested(f):
        """The block, cut into halves again and again."""

        def halves(weights, h):
            if len(weights) == 1:
                return f(weights, h)
            middle = len(weights) // 2
            h = fdbr.checkpoint(halves)(weights[:middle], h)
            return fdbr.checkpoint(halves)(weights[middle:], h)

        return halves

    flat, expected = peak(lambda: fdbr.grad(loss)(weights, 64, lambda f: f))
    deep, found = peak(lambda: fdbr.grad(loss)(weights, 64, nested))
    assert deep < 14 * unit < flat / 4
    assert bits(found) == bits(expected)


def test_nothing_is_kept_of_a_result_that_is_not_used():
    loss, weights, unit = network(ops.tanh, depth=8)
    kept = []

    def f(weights):
        before = tracemalloc.get_traced_memory()[0]
        value = loss(weights, 8, fdbr.checkpoint)
        kept.append(tracemalloc.get_traced_memory()[0] - before)
        return value

    peak(lambda: fdbr.grad(f)(weights))
    assert kept[-1] < 1.2 * unit  # the block's result, which the loss squares
