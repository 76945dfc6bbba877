"""Layers one after the other."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random

KEYS = random.split(random.key(0), 2)
X = np.ones((4, 3), "float32")


@fdbr.frozen
class Noise(nn.Layer):
    """Adds a random number in training, and counts how often."""

    count: int = 0

    def __call__(self, x):
        return x

    def train(self, x, *, key=None):
        return x + float(random.normal(key)), Noise(self.count + 1)


@fdbr.frozen
class Bare:
    """A frozen class that is no `Layer`."""

    factor: float

    def __call__(self, x):
        return self.factor * x


def net():
    return nn.Sequential(nn.Linear.init(KEYS[0], 3, 5), ops.relu, nn.Linear.init(KEYS[1], 5, 2))


def test_each_layer_is_given_the_output_of_the_one_before():
    first, relu, last = model = net()
    np.testing.assert_array_equal(model(X), last(relu(first(X))))


def test_without_layers_the_input_is_the_output():
    assert nn.Sequential()(X) is X
    assert nn.Sequential().train(X, key=KEYS[0]) == (X, nn.Sequential())


def test_functions_are_no_leaves():
    assert fdbr.tree.paths(net()) == [
        "layers[0].weight",
        "layers[0].bias",
        "layers[2].weight",
        "layers[2].bias",
    ]
    assert isinstance(net()[1], nn.Lambda)


def test_mapping_over_a_network_keeps_its_functions():
    doubled = fdbr.tree.map(lambda leaf: 2 * leaf, net())
    np.testing.assert_array_equal(doubled[0].weight, 2 * net()[0].weight)
    assert doubled(X).shape == (4, 2)


def test_two_networks_of_the_same_layers_have_one_structure():
    assert fdbr.tree.structure(net()) == fdbr.tree.structure(net())
    assert net() == net()


def test_a_network_is_a_sequence_of_layers():
    model = net()
    assert len(model) == 3
    assert list(model)[-1] is model[2] is model[-1]
    assert isinstance(model[1:], nn.Sequential)
    assert list(model[1:]) == [model[1], model[2]]
    with pytest.raises(IndexError):
        model[3]


def test_training_threads_the_successors_and_gives_each_layer_its_own_key():
    model = nn.Sequential(Noise(), Noise(7), ops.relu, Bare(1.0))
    y, successor = model.train(np.zeros(1), key=KEYS[0])
    assert [layer.count for layer in successor[:2]] == [1, 8]
    assert successor[2:] == model[2:]
    own = random.split(KEYS[0], 4)
    noise = float(random.normal(own[0])) + float(random.normal(own[1]))
    np.testing.assert_allclose(y, max(noise, 0.0))
    assert noise != 2 * float(random.normal(own[0]))


def test_training_without_a_key_is_training_without_keys():
    model = net()
    y, successor = model.train(X)
    np.testing.assert_array_equal(y, model(X))
    assert successor == model


def test_networks_nest():
    model = nn.Sequential(net(), np.tanh)
    np.testing.assert_array_equal(model(X), np.tanh(net()(X)))


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="layer 1 is a int, which cannot be called"):
        nn.Sequential(ops.relu, 3)


def test_it_prints_well():
    assert repr(net()) == (
        "Sequential(layers=(Linear(weight=float32[5,3], bias=array([0., 0., 0., 0., 0.], "
        "dtype=float32)), Lambda(fn=relu), Linear(weight=float32[2,5], bias=array([0., 0.], "
        "dtype=float32))))"
    )


def test_the_gradient_is_a_network_that_fits():
    model = net()
    grads = fdbr.grad(lambda model: ops.sum(model(X)))(model)
    assert fdbr.tree.structure(grads) == fdbr.tree.structure(model)


def test_a_layer_without_call_says_so():
    @fdbr.frozen
    class Empty(nn.Layer):
        pass

    for use in (lambda: Empty()(X), lambda: Empty().train(X), lambda: nn.Sequential(Empty())):
        with pytest.raises(TypeError, match=r"Empty.*(not callable|cannot be called)"):
            use()


def test_a_model_prints_as_a_tree_with_shapes_and_counts():
    model = nn.Sequential(nn.Linear.init(random.key(0), 3, 2), ops.relu)
    assert str(model).splitlines() == [
        "Sequential  [8 parameters]",
        "  layers[0]: Linear  [8 parameters]",
        "    weight: float32[2,3]",
        "    bias: float32[2]",
        "  layers[1]: Lambda(fn=relu)",
    ]
