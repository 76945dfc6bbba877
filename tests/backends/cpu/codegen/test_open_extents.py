"""The machine code of fused steps serves all sizes of one rank and layout."""

import numpy as np
import pytest
from compiler.comparing import assert_same
from compiler.recorded import normal

import fdbr
from fdbr import ops, tree
from fdbr.backends.cpu.runtime import compiling


def train_step(params, x, labels):
    def loss(params):
        w, b, v, c = params
        hidden = ops.gelu(ops.linear(x, w, b))
        return ops.mean(ops.softmax_cross_entropy(ops.linear(hidden, v, c), labels))

    value, grads = fdbr.value_and_grad(loss)(params)
    return value, tree.map(lambda p, g: p - 0.1 * g, params, grads)


def cross_entropy(x, labels):
    loss = lambda x: ops.mean(ops.softmax_cross_entropy(x, labels))
    return fdbr.value_and_grad(loss)(x)


def layer_norm(x, scale, bias):
    scaled = lambda x, scale, bias: ops.layer_norm(x) * scale + bias
    y, pullback = fdbr.vjp(scaled, x, scale, bias)
    return y, pullback(y * 2)


def adam(param, grad, mean, square, number):
    mean = 0.9 * mean + 0.1 * grad
    square = 0.999 * square + 0.001 * grad * grad
    rate = 0.01 / (1 - 0.9**number)
    return param - rate * mean / (ops.sqrt(square) + 1e-8), mean, square


def labels(count):
    return np.arange(count) * 7 % 10


PARAMS = normal(128, 64), normal(128), normal(10, 128), normal(10)
CASES = {
    "train step": (train_step, lambda n: (PARAMS, normal(n, 64), labels(n))),
    "cross entropy": (cross_entropy, lambda n: (normal(n, 10), labels(n))),
    "layer norm": (layer_norm, lambda n: (normal(n, 100), normal(100), normal(100))),
    "Adam": (adam, lambda n: (*[np.abs(normal(20 * n, seed=i)) for i in range(4)], np.float32(3))),
}


def nests():
    return {source for source in compiling._loaded if source.startswith("nest")}


@pytest.mark.parametrize("name", CASES)
def test_another_number_of_examples_compiles_no_machine_code(name):
    f, args = CASES[name]
    jitted = fdbr.jit(f)
    jitted(*args(3000))
    jitted(*args(3000))
    before = nests()
    assert before
    for count in (3001, 3500, 4800):
        jitted(*args(count))
        found = tree.leaves(jitted(*args(count)))
        assert nests() <= before
        assert_same(found, tree.leaves(f(*args(count))), ulps=256)
