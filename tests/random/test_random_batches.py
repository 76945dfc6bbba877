"""Draws where their keys lie, and of batches of keys and parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import random
from fdbr.backends.cpu.tuning import TUNING
from fdbr.ops.philox import random_words

FLOATS = ("uniform", "normal", "gumbel", "exponential", "laplace", "logistic", "cauchy")
SEEDS = st.integers(0, 2**128 - 1)


SAMPLERS = {
    "bits": lambda key: random.bits(key, (3,)),
    **{name: lambda key, name=name: getattr(random, name)(key, (5,)) for name in FLOATS},
    "normal, float32": lambda key: random.normal(key, (2, 3), "float32"),
    "one number": lambda key: random.uniform(key),
    "nothing": lambda key: random.normal(key, (2, 0)),
    "uniform between bounds": lambda key: random.uniform(key, (3,), "float32", -1, 2),
    "truncated_normal": lambda key: random.truncated_normal(key, -1.0, 3.0, (4,)),
    "bernoulli": lambda key: random.bernoulli(key, 0.3, (6,)),
    "categorical": lambda key: random.categorical(key, key.astype("f8") * 0, shape=(4,)),
    "randint": lambda key: random.randint(key, (5,), -3, 4),
    "randint of bytes": lambda key: random.randint(key, (5,), 0, 256, "uint8"),
    "permutation": lambda key: random.permutation(key, 5),
    "choice": lambda key: random.choice(key, 7, (2, 2)),
    "choice of different": lambda key: random.choice(key, 7, (3,), replace=False),
    "split": lambda key: random.split(key, 3),
    "fold_in": lambda key: random.fold_in(key, 2**63 + 5),
}
every_sampler = pytest.mark.parametrize("draw", SAMPLERS.values(), ids=SAMPLERS)


@every_sampler
def test_draws_lie_where_the_key_lies(draw, xp, to_numpy):
    key = xp.asarray(np.asarray(random.key(3)))
    draws, desired = draw(key), draw(random.key(3))
    assert type(draws) is type(key)
    assert draws.dtype == desired.dtype
    np.testing.assert_allclose(to_numpy(draws), desired, rtol=1e-12)


# --- batches of keys ----------------------------------------------------------------

KEYS = random.split(random.key(9), 4)


@pytest.fixture
def one_at_a_time(monkeypatch):
    """Forbid NumPy's generator, which takes one key only, and give it back for comparisons."""
    generator = np.random.Philox

    def refuse(*args, **kwargs):
        raise AssertionError("a batch of keys was drawn from one by one")

    monkeypatch.setattr(np.random, "Philox", refuse)
    return lambda: monkeypatch.setattr(np.random, "Philox", generator)


@every_sampler
def test_draws_of_a_batch_of_keys_are_bitwise_those_of_each(draw, one_at_a_time):
    found = fdbr.vmap(draw)(KEYS)
    one_at_a_time()
    np.testing.assert_array_equal(found, np.stack([draw(key) for key in KEYS]))


@given(st.lists(SEEDS, min_size=1, max_size=4), st.integers(0, 2**64 - 1), st.integers(0, 9))
def test_words_are_those_of_numpy(seeds, start, count):
    keys = np.stack([random.key(seed) for seed in seeds])
    counter = np.array([start, 0, 0, 1], dtype=np.uint64)
    desired = [np.random.Philox(key=key, counter=counter).random_raw(count) for key in keys]
    found = random_words(keys, np.array([[start]], dtype=np.uint64), shape=(count,), use=1)
    np.testing.assert_array_equal(found, desired)


def test_many_words_are_made_in_parts(monkeypatch):
    whole = random_words(KEYS, 0, shape=(50,), use=0)
    monkeypatch.setattr(TUNING, "philox_blocks", 8)
    np.testing.assert_array_equal(random_words(KEYS, 0, shape=(50,), use=0), whole)


def test_numbers_and_seeds_may_be_batched():
    numbers = np.array([0, 7, 2**63, 2**64 - 1], dtype=np.uint64)
    key = random.key(1)
    folded = [random.fold_in(key, int(n)) for n in numbers]
    assert len({tuple(k.tolist()) for k in folded}) == 4
    by_number = fdbr.vmap(random.fold_in, in_axes=(None, 0))(key, numbers)
    np.testing.assert_array_equal(by_number, folded)
    together = fdbr.vmap(random.fold_in)(KEYS, numbers)
    each = [random.fold_in(k, int(n)) for k, n in zip(KEYS, numbers, strict=True)]
    np.testing.assert_array_equal(together, each)
    by_key = fdbr.vmap(random.fold_in, in_axes=(0, None))(KEYS, 7)
    np.testing.assert_array_equal(by_key, [random.fold_in(k, 7) for k in KEYS])
    seeded = fdbr.vmap(random.key)(np.arange(3))
    np.testing.assert_array_equal(seeded, [random.key(seed) for seed in range(3)])


def test_batches_of_keys_nest():
    numbers = np.arange(3)
    fold = lambda key, n: random.normal(random.fold_in(key, n), (2,))
    grid = fdbr.vmap(fdbr.vmap(fold, in_axes=(None, 0)), in_axes=(0, None))(KEYS, numbers)
    np.testing.assert_array_equal(grid, [[fold(key, n) for n in numbers] for key in KEYS])


@pytest.mark.parametrize("batched", [(0, 0), (0, None), (None, 0)])
@pytest.mark.parametrize(
    ("draw", "parameters"),
    [
        (lambda key, p: random.bernoulli(key, p), np.array([[0.2, 0.8]] * 3)),
        (lambda key, p: random.bernoulli(key, p, (2, 4)), np.array([0.0, 0.5, 1.0])),
        (lambda key, low: random.uniform(key, (3,), "float64", low, 9.0), np.arange(3.0)),
        (lambda key, high: random.truncated_normal(key, -1.0, high, (3,)), np.arange(3.0)),
        (lambda key, logits: random.categorical(key, logits), np.eye(3) * 4),
        (lambda key, logits: random.categorical(key, logits, shape=(5,)), np.eye(3) * 4),
        (lambda key, high: random.randint(key, (4,), -2, high), np.array([1, 200, 5])),
        (lambda key, x: random.permutation(key, x), np.arange(12).reshape(3, 4)),
        (lambda key, a: random.choice(key, a, (2,)), np.arange(12).reshape(3, 4)),
        (lambda key, p: random.choice(key, 3, (4,), p=p), np.array([[0.1, 0.2, 0.7]] * 3)),
        (lambda key, p: random.choice(key, 3, (2,), False, p), np.array([[0.1, 0.2, 0.7]] * 3)),
    ],
)
def test_parameters_may_be_batched(draw, parameters, batched):
    keys = KEYS[:3]
    args = [x if axis == 0 else x[0] for x, axis in zip((keys, parameters), batched, strict=True)]
    found = fdbr.vmap(draw, in_axes=batched)(*args)
    each = [
        draw(*(x[i] if axis == 0 else x for x, axis in zip(args, batched, strict=True)))
        for i in range(3)
    ]
    np.testing.assert_allclose(found, np.stack(each), rtol=1e-14)


def test_draws_under_vmap_are_differentiable_by_their_parameters():
    def loss(scale, key):
        return (random.normal(key, (5,)) * scale).sum() + random.uniform(
            key, (), "float64", 0.0, scale
        )

    found = fdbr.vmap(fdbr.grad(loss), in_axes=(None, 0))(2.0, KEYS)
    desired = [random.normal(key, (5,)).sum() + random.uniform(key) for key in KEYS]
    np.testing.assert_allclose(found, desired)


def test_truncated_draws_are_differentiable_by_their_bounds():
    draw = lambda low: random.truncated_normal(random.key(3), low, 2.5, (4,)).sum()
    step = 1e-6
    for low in (-1.0, 0.5):
        difference = (draw(low + step) - draw(low - step)) / (2 * step)
        np.testing.assert_allclose(fdbr.grad(draw)(low), difference, rtol=1e-7)


def test_a_batch_with_a_wrong_parameter_is_refused():
    with pytest.raises(ValueError, match="p must lie in"):
        fdbr.vmap(random.bernoulli)(KEYS, np.array([0.5, 0.5, 1.5, 0.5]))
    with pytest.raises(ValueError, match="data must be at least 0"):
        fdbr.vmap(random.fold_in)(KEYS, np.arange(-1, 3))
    with pytest.raises(TypeError, match=r"data must be an integer, got float64\[\]"):
        fdbr.vmap(random.fold_in)(KEYS, np.ones(4))
