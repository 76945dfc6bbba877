"""Errors within a model name the path of the layer that was being called."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random

KEY = random.key(0)
X = np.ones((5, 3), "float32")  # where four features are expected


@fdbr.frozen
class Net:
    body: nn.Sequential
    heads: dict

    def __call__(self, x):
        return self.heads["a"](self.body(x))


@fdbr.frozen
class Sum(nn.Layer):
    weight: object

    def __call__(self, x):
        return ops.add(x, self.weight)


NET = Net(
    nn.Sequential(nn.Sequential(nn.Linear.init(KEY, 4, 2)), ops.relu),
    {"a": nn.Linear.init(KEY, 2, 2)},
)


@pytest.mark.parametrize(
    "call",
    [
        lambda: NET(X),
        lambda: fdbr.grad(lambda net: net(X).sum())(NET),
        lambda: fdbr.vmap(NET)(X),
        lambda: fdbr.jit(lambda net, x: net(x))(NET, X),
        lambda: fdbr.checkpoint(NET)(X),
    ],
)
def test_an_error_names_the_layer_under_every_transformation(call):
    where = r"\n  in model Net\.body\.layers\[0\]\.layers\[0\] \(Linear\)$"
    with pytest.raises(ValueError, match=where):
        call()


def test_errors_of_operations_in_a_users_layer_name_it_too():
    with pytest.raises(
        ValueError, match=r"^fdbr\.ops\.add: (.|\n)*in model Sequential\.layers\[0\] "
    ):
        nn.Sequential(Sum(np.ones(2)))(X)


def test_a_part_that_is_not_found_in_the_model_is_named_by_its_class():
    made_on_the_way = nn.Lambda(lambda x: Sum(np.ones(2))(x))
    with pytest.raises(ValueError, match=r"in model Sequential\.layers\[0\] > Sum"):
        nn.Sequential(nn.Sequential(made_on_the_way))(X)


def test_outside_a_model_nothing_is_added():
    with pytest.raises(ValueError, match="add") as caught:
        ops.add(np.ones(2), np.ones(3))
    assert "in model" not in str(caught.value)


def test_errors_of_the_users_own_code_are_left_alone():
    def refuse(x):
        raise ValueError("not today")

    with pytest.raises(ValueError, match=r"^not today$"):
        nn.Sequential(nn.Lambda(refuse))(X)
