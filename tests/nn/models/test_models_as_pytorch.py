"""Small models give what torchvision's and plain ones of PyTorch give, with the same weights."""

import numpy as np
import pytest

import fdbr
from benchmarks.named_weights import numbers
from fdbr import nn, tree
from nn.models.small_models import IMAGES, TEXTS, images, made
from nn.recorded import recorded

RECORDED = recorded("models")
TOKENS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
TYPES = np.array([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])


def joined(parts):
    return np.concatenate([np.reshape(part, -1) for part in parts])


def test_every_small_model_is_compared():
    modes = {f"{name}, {mode}" for name in IMAGES for mode in ("training", "evaluation")}
    assert set(RECORDED) == modes | set(TEXTS)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", IMAGES)
def test_outputs_gradients_and_statistics_are_pytorchs(name, training):
    model = made(name)

    def total(x):
        outs, successor = model.train(x) if training else (model(x), model)
        outs = tree.leaves(outs)
        return sum((out**2).sum() for out in outs), (outs, successor)

    (_, (outs, successor)), slope = fdbr.value_and_grad(total, has_aux=True)(images(name))
    parts = [*outs, slope[:, :, ::9, ::9]]
    if training:
        parts += [
            (value * numbers(key, value.shape)).sum()
            for key, value in nn.save_torch_state(successor).items()
            if "running" in key
        ]
    expected = RECORDED[f"{name}, {'training' if training else 'evaluation'}"]["values"]
    # PyTorch's hard_sigmoid has a derivative of 1/6 in float32, in float64 too.
    bound = 1e-7 if "MobileNet" in name else 1e-9
    np.testing.assert_allclose(joined(parts), expected, rtol=0, atol=bound * abs(expected).max())


@pytest.mark.parametrize("name", IMAGES)
def test_float32_stays_float32_and_near(name):
    outs = tree.leaves(made(name, "float32")(images(name, "float32")))
    expected = RECORDED[f"{name}, evaluation"]["values"][: outs[0].size]
    assert {out.dtype for out in outs} == {np.dtype("float32")}
    np.testing.assert_allclose(outs[0].reshape(-1), expected, atol=1e-4 * abs(expected).max())


def test_gpt2_is_pytorchs():
    model = made("GPT2")

    def total(table):
        y = tree.replace(model, wte=nn.Embed(table))(TOKENS)
        return (y**2).sum(), y

    (_, y), slope = fdbr.value_and_grad(total, has_aux=True)(model.wte.weight)
    np.testing.assert_allclose(joined([y, slope]), RECORDED["GPT2"]["values"], rtol=1e-9)


def test_bert_is_pytorchs():
    model = made("BERT")

    def total(table):
        ys = tree.replace(model, word_embeddings=nn.Embed(table))(TOKENS, MASK, TYPES)
        return sum((y**2).sum() for y in ys), list(ys)

    (_, ys), slope = fdbr.value_and_grad(total, has_aux=True)(model.word_embeddings.weight)
    found = joined([*ys, slope])
    np.testing.assert_allclose(found, RECORDED["BERT"]["values"], rtol=1e-8, atol=1e-10)
