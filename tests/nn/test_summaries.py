"""Summaries: tables of what the layers of a model give, hold and compute."""

import attrs
import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, tree
from nn.layer_cases import CASES, KEY, LayerCase, numbers

PLAIN = [c for c in CASES if c.call is attrs.fields(LayerCase).call.default]


@pytest.mark.parametrize("case", PLAIN, ids=repr)
def test_a_summary_of_every_layer_tells_its_shapes_and_its_size(case):
    layer, inputs = case.make("float32"), case.inputs("float32")
    table = nn.summary(layer, *inputs)
    out = [leaf for leaf in tree.leaves(layer(*inputs)) if hasattr(leaf, "dtype")]
    row = table[""]
    assert row.output_shapes == tuple(leaf.shape for leaf in out)
    assert row.output_dtypes == tuple(str(leaf.dtype) for leaf in out)
    assert (row.name, row.depth, row.calls) == (type(layer).__name__, 0, 1)
    assert table.parameters == tree.size(tree.trainable(layer))
    assert table.parameters + table.buffers == tree.size(layer)
    assert row.memory == sum(leaf.nbytes for leaf in out)
    for other in table.layers[1:]:
        part = eval(f"layer.{other.path}", {"layer": layer})
        assert type(part).__name__ == other.name
        assert other.parameters == tree.size(tree.trainable(part))
    assert len(str(table).splitlines()) == len(table) + 6


def net():
    return nn.Sequential(
        nn.Conv.init(KEY, 3, 4, (3, 3), padding=1, groups=1),
        nn.BatchNorm.init(KEY, 4),
        ops.relu,
        nn.Sequential(nn.Flatten(), nn.Linear.init(KEY, 4 * 6 * 5, 7)),
    )


def test_multiply_adds_are_those_of_convolutions_and_products():
    table = nn.summary(net(), (2, 3, 6, 5))
    conv, linear = 2 * 4 * 6 * 5 * 27, 2 * 120 * 7
    assert [(row.path, row.operations) for row in table] == [
        ("", conv + linear),
        ("layers[0]", conv),
        ("layers[1]", 0),
        ("layers[2]", 0),
        ("layers[3]", linear),
        ("layers[3].layers[0]", 0),
        ("layers[3].layers[1]", linear),
    ]
    assert table.input_memory == 2 * 3 * 6 * 5 * 4
    assert table.output_memory == 4 * (4 * 2 * 120 + 14)
    assert table.parameter_memory == 4 * tree.size(net())


@pytest.mark.parametrize(
    ("function", "shape", "count"),
    [
        (lambda x: x @ x.T, (3, 4), 36),
        (lambda x: x @ x[0], (3, 4), 12),
        (lambda x: ops.einsum("ij,kj->ik", x, x), (3, 4), 36),
        (lambda x: ops.conv(x, np.ones((4, 1, 3), "float32"), groups=2), (2, 2, 9), 2 * 4 * 7 * 3),
        (lambda x: ops.conv_transpose(x, np.ones((2, 4, 3), "float32")), (2, 2, 9), 36 * 12),
        (lambda x: fdbr.scan(lambda c, r: (c @ x, None), x, x)[0], (3, 3), 81),
        (lambda x: x + x, (3, 4), 0),
    ],
)
def test_each_product_is_counted(function, shape, count):
    assert nn.summary(nn.Lambda(function), numbers(shape, "float32")).operations == count


@fdbr.frozen
class Twice(nn.Layer):
    inner: nn.Linear
    unused: nn.Linear
    table: dict

    def __call__(self, x):
        return self.table["a"](self.inner(self.inner(x)))


def test_layers_that_are_called_twice_or_not_at_all_say_so():
    linear = nn.Linear.init(KEY, 4, 4)
    table = nn.summary(Twice(linear, linear, {"a": linear}), (3, 4))
    assert [table[path].calls for path in ("inner", "unused", "table['a']")] == [2, 0, 1]
    assert table["inner"].operations == 2 * 48
    assert table["unused"].output_shapes == ()
    assert "(2 calls)" in str(table)
    assert "not called" in str(table)
    with pytest.raises(KeyError, match="there is no layer at"):
        table["other"]


def test_a_summary_is_a_value_and_leaves_the_model_alone():
    model = net()
    one, other = nn.summary(model, (2, 3, 6, 5)), nn.summary(model, (2, 3, 6, 5))
    assert one == other
    assert hash(one) == hash(other)
    assert type(model[0]) is nn.Conv
    assert not hasattr(model[0], "path_in_summary")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        one.layers = ()


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match=r"^fdbr\.nn\.summary: model must be a model"):
        nn.summary(3.0, (2, 3))
    with pytest.raises(ValueError, match=r"in model Sequential\.layers\[3\]\.layers\[1\]"):
        nn.summary(net(), (2, 3, 6, 4))
