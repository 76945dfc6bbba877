"""Texts made by a decoder."""

import numpy as np
import pytest

import fdbr
from fdbr import random, tree
from fdbr.nn.models import generate, sample
from fdbr.testing import assert_allclose
from nn.models.small_models import KEY, made

BEGIN = np.array([[3, 1, 4], [1, 5, 9]])


def test_logits_with_a_cache_are_those_without():
    model = made("GPT2")
    tokens = np.array([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
    whole = model(tokens)
    caches = model.cache(2, 8)
    parts = []
    for begin, end in ((0, 3), (3, 4), (4, 6)):
        logits, caches = model(tokens[:, begin:end], cache=caches)
        parts.append(logits)
    assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-9, atol=1e-10)
    assert_allclose(model(tokens[0]), whole[0], rtol=1e-9, atol=1e-10)


def test_the_last_logits_alone_are_the_last_of_all():
    model = made("GPT2")
    assert_allclose(model(BEGIN, last=True), model(BEGIN)[:, -1:], rtol=1e-9, atol=1e-10)
    logits, caches = model(BEGIN, cache=model.cache(2, 8), last=True)
    assert logits.shape == model(BEGIN)[:, -1:].shape
    assert int(caches[0].position) == 3


def test_a_model_of_ones_own_generates_with_as_much_as_it_takes():
    model, asked = made("GPT2"), []

    class Own:
        def __call__(self, tokens):
            asked.append(tokens.shape)
            return model(tokens)

    texts = generate(Own(), KEY, BEGIN, 2, cache=False)
    assert (texts == generate(model, KEY, BEGIN, 2)).all()
    assert asked == [(2, 3), (2, 4)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.7},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.9},
        {"temperature": 0},
    ],
    ids=str,
)
def test_texts_are_the_same_with_and_without_a_cache(settings):
    model = made("GPT2")
    texts = generate(model, KEY, BEGIN, 5, **settings)
    assert texts.shape == (2, 8)
    assert texts.dtype == BEGIN.dtype
    assert (texts[:, :3] == BEGIN).all()
    assert (texts == generate(model, KEY, BEGIN, 5, cache=False, **settings)).all()
    assert (texts == generate(model, KEY, BEGIN, 5, **settings)).all()


def test_other_keys_give_other_texts():
    model = made("GPT2")
    texts = {generate(model, random.key(i), BEGIN, 5, temperature=2.0).tobytes() for i in range(5)}
    assert len(texts) == 5


def test_without_temperature_the_likeliest_token_follows():
    model = made("GPT2")
    tokens = BEGIN
    for _ in range(4):
        tokens = np.concatenate([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    assert (generate(model, None, BEGIN, 4, temperature=0) == tokens).all()
    assert (generate(model, KEY, BEGIN, 4, top_k=1) == tokens).all()
    assert (generate(model, KEY, BEGIN, 4, top_p=1e-6) == tokens).all()
    assert (generate(model, None, BEGIN[0], 4, temperature=0) == tokens[0]).all()


def test_no_token_is_added_where_none_is_asked_for():
    assert (generate(made("GPT2"), KEY, BEGIN, 0) == BEGIN).all()


def test_a_step_with_a_cache_is_jitted():
    model = made("GPT2")
    step = fdbr.jit(lambda new, caches: model(new, cache=caches))
    _, caches = model(BEGIN, cache=model.cache(2, 8))
    plain = caches
    for token in (1, 2, 3):
        new = np.full((2, 1), token)
        logits, caches = step(new, caches)
        expected, plain = model(new, cache=plain)
        assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)
        assert tree.structure(caches) == tree.structure(plain)


SHARES = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, SHARES),
        ({"temperature": 0.5}, SHARES**2 / (SHARES**2).sum()),
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_k": 9}, SHARES),
        ({"top_p": 0.6}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_p": 0.75}, [4 / 9, 3 / 9, 2 / 9, 0]),
        ({"top_p": 1.0}, SHARES),
        ({"top_k": 3, "top_p": 0.7}, [4 / 7, 3 / 7, 0, 0]),
    ],
    ids=str,
)
def test_tokens_are_drawn_with_their_probabilities(settings, expected):
    logits = np.broadcast_to(np.log(SHARES), (4000, 4))
    counts = np.bincount(sample(random.key(3), logits, **settings), minlength=4)
    assert_allclose(counts / 4000, np.asarray(expected), atol=0.03)
    assert not counts[np.asarray(expected) == 0].any()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"temperature": -1}, ValueError, "temperature must be a number from 0 on, got -1"),
        ({"temperature": float("nan")}, ValueError, "temperature must be a number from 0 on"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1"),
        ({"top_k": 1.5}, TypeError, "top_k must be an integer"),
        ({"top_p": 0.0}, ValueError, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, ValueError, r"top_p must be in \(0, 1\]"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, error, message):
    with pytest.raises(error, match=message):
        generate(made("GPT2"), KEY, BEGIN, 2, **settings)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"key": None}, TypeError, "there is none; give one, or temperature=0"),
        ({"length": -1}, ValueError, "length must be at least 0"),
        ({"length": 7}, ValueError, "9 tokens are more than the model has positions, 8"),
        ({"tokens": np.zeros((2, 0), int)}, ValueError, "one at least in each text"),
        ({"tokens": np.zeros((2, 3))}, ValueError, "tokens must be integers"),
        ({"tokens": np.array([[11]])}, ValueError, "in model GPT2.wte"),
    ],
    ids=str,
)
def test_generation_refuses_unsuitable_arguments(change, error, message):
    given = {"key": KEY, "tokens": BEGIN, "length": 2} | change
    with pytest.raises(error, match=message):
        generate(made("GPT2"), **given)


def test_texts_may_be_of_any_array_module(xp, to_numpy):
    model = made("GPT2")
    moved = tree.map(xp.asarray, model)
    texts = generate(moved, KEY, xp.asarray(BEGIN), 3, top_k=5, top_p=0.9)
    assert type(texts) is type(xp.asarray(BEGIN))
    expected = generate(model, KEY, BEGIN, 3, top_k=5, top_p=0.9)
    np.testing.assert_array_equal(to_numpy(texts), expected)


@pytest.mark.parametrize("name", ["GPT2", "BERT"])
def test_models_of_texts_are_jitted_mapped_and_trained(name):
    model = made(name, **({"resid_pdrop": 0.5} if name == "GPT2" else {"hidden_dropout_prob": 0.5}))

    def loss(model, tokens, key=None):
        outs = model(tokens) if key is None else model.train(tokens, key=key)[0]
        return sum((out**2).sum() for out in tree.leaves(outs))

    gradient = fdbr.grad(loss)(model, BEGIN[0])
    jitted = fdbr.jit(fdbr.grad(loss))(model, BEGIN[0])
    assert_allclose(jitted, gradient, rtol=1e-8, atol=1e-9)
    each = fdbr.vmap(fdbr.grad(loss), in_axes=(None, 0))(model, BEGIN)
    assert_allclose(tree.map(lambda leaf: leaf[0], each), gradient, rtol=1e-8, atol=1e-9)
    drawn = [loss(model, BEGIN, random.key(seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(TypeError, match=f"got no key(.|\n)*in model {name}"):
        model.train(BEGIN)
