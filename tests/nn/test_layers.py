"""What holds for every layer, walked over all of them (`layer_cases.py`)."""

import inspect

import numpy as np
import pytest
from ops.short import every_short_dtype
from sharing import sampled, shared

import fdbr
from fdbr import nn, train, tree
from fdbr.testing import assert_allclose, check_grads
from nn.layer_cases import CASES, KEY

TWICE = sampled(CASES, 0)
"""Cases whose second derivatives are checked, too: those of their operations have tests."""

each = pytest.mark.parametrize("case", CASES, ids=repr)


def made(case, dtype="float64"):
    """The layer, its inputs, and a number made of what it gives."""
    layer, inputs = case.make(dtype), case.inputs(dtype)

    def total(layer, *inputs):
        out = floating(case.call(layer, *inputs))
        return sum(((1 + i % 3) * x * x / 2 + x).sum() for i, x in enumerate(out))

    return layer, inputs, total


def floating(value):
    return [x for x in tree.leaves(value) if getattr(x, "dtype", np.dtype(int)).kind == "f"]


def test_every_public_layer_has_a_case():
    layers = {
        name
        for name in nn.__all__
        if inspect.isclass(kind := getattr(nn, name)) and issubclass(kind, nn.Layer)
    } - {"Layer"}
    assert not layers - {case.name.split()[0] for case in CASES}


@pytest.mark.parametrize("case", shared(CASES), ids=repr)
def test_derivatives_by_inputs_and_parameters_are_right(case):
    layer, inputs, _ = made(case)

    def value(both):
        layer, *inputs = both
        return floating(case.call(layer, *inputs))

    check_grads(
        value, (layer, *inputs), order=case.order if case in TWICE else 1, modes=("vjp", "jvp")
    )


@each
def test_a_batch_of_gradients_is_that_of_each_example(case):
    layer, inputs, total = made(case)
    gradient = fdbr.grad(total)
    if not tree.leaves(tree.trainable(layer)):
        gradient = fdbr.grad(lambda x, layer, *others: total(layer, x, *others))
        return check_batch(lambda x, *others: gradient(x, layer, *others), inputs)
    return check_batch(lambda *inputs: gradient(layer, *inputs), inputs)


def check_batch(function, inputs):
    """vmap over a batch of three gives what a loop gives."""
    axes = [0 if getattr(x, "dtype", np.dtype(int)).kind == "f" else None for x in inputs]
    if 0 not in axes:
        return
    examples = [
        [x * scale if axis == 0 else x for x, axis in zip(inputs, axes, strict=True)]
        for scale in (1.0, 0.5, -1.25)
    ]
    batch = [
        np.stack([example[i] for example in examples]) if axis == 0 else inputs[i]
        for i, axis in enumerate(axes)
    ]
    found = fdbr.vmap(function, tuple(axes))(*batch)
    for i, example in enumerate(examples):
        one = tree.map(lambda leaf, i=i: leaf[i], found)
        assert_allclose(one, function(*example), rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@each
def test_checkpointed_and_jitted_it_gives_the_same(case):
    layer, inputs, total = made(case)
    run = fdbr.value_and_grad(lambda both: total(*both))
    expected = run((layer, *inputs))
    again = fdbr.value_and_grad(lambda both: fdbr.checkpoint(lambda b: total(*b))(both))
    assert_allclose(again((layer, *inputs)), expected, rtol=1e-9, atol=1e-10)
    jitted = fdbr.jit(run)
    for _ in range(2):
        assert_allclose(jitted((layer, *inputs)), expected, rtol=1e-8, atol=1e-9)


@each
def test_float32_stays_float32(case):
    layer, inputs, total = made(case, "float32")
    value, gradient = fdbr.value_and_grad(lambda both: total(*both))((layer, *inputs))
    assert value.dtype == np.float32
    assert {leaf.dtype for leaf in floating(gradient)} == {np.dtype("float32")}
    wide, others, total = made(case)
    assert_allclose(value, np.float32(total(wide, *others)), rtol=2e-3, atol=1e-3)


@each
@every_short_dtype
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_dtypes_of_16_bits_stay(case, dtype):
    layer, inputs = case.make(dtype), case.inputs(dtype)
    own = {leaf.dtype for leaf in tree.leaves(tree.trainable((layer, inputs)))}
    assert own <= {np.dtype(dtype)}
    trained, successor = layer.train(*inputs, **({"key": KEY} if case.key else {}))
    for out in (case.call(layer, *inputs), trained):
        found = {leaf.dtype for leaf in tree.leaves(tree.trainable(out))}
        assert found <= {np.dtype(dtype)}
    assert [x.dtype for x in tree.leaves(successor)] == [x.dtype for x in tree.leaves(layer)]


@each
def test_training_gives_a_successor_of_the_same_form(case):
    layer, inputs, _ = made(case)
    out, successor = layer.train(*inputs, **({"key": KEY} if case.key else {}))
    assert tree.structure(successor) == tree.structure(layer)
    shapes = tree.map(np.shape, successor), tree.map(np.shape, layer)
    assert shapes[0] == shapes[1]
    assert tree.leaves(out)


@each
def test_it_prints_as_a_tree_that_counts_its_parameters(case):
    layer = case.make("float32")
    text = str(layer)
    count = tree.size(tree.trainable(layer))
    assert text.startswith(type(layer).__name__)
    assert f"{count:,} parameters" in text or not count
    assert repr(layer).startswith(type(layer).__name__)


@each
def test_it_is_read_from_a_file_bit_by_bit_as_it_was_written(case, tmp_path):
    layer = case.make("float32")
    train.save(tmp_path / "layer.safetensors", layer)
    like = tree.map(lambda leaf: np.zeros_like(leaf) if hasattr(leaf, "shape") else leaf, layer)
    assert train.load(tmp_path / "layer.safetensors", like) == layer
