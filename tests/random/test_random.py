"""Keys and draws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import fdbr
from fdbr import random
from fdbr.random import continuous

SEEDS = st.integers(0, 2**128 - 1)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
FLOATS = ("uniform", "normal", "gumbel", "exponential", "laplace", "logistic", "cauchy")
COUNT = 20_000


def floating(name):
    return getattr(random, name)


# --- keys ---------------------------------------------------------------------------


@given(SEEDS)
def test_a_key_is_a_read_only_pair_of_words(seed):
    key = random.key(seed)
    assert key.shape == (2,)
    assert key.dtype == np.uint64
    assert int(key[0]) + (int(key[1]) << 64) == seed
    with pytest.raises(ValueError, match="read-only"):
        key[0] = 0


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match="seed must lie in 0"):
        random.key(seed)


def test_a_seed_that_is_no_integer_is_refused():
    with pytest.raises(TypeError, match=r"seed must be an integer, got float 1\.5"):
        random.key(1.5)


def test_a_numpy_integer_is_a_seed():
    assert (random.key(np.int64(3)) == random.key(3)).all()


@given(SEEDS, st.integers(1, 7))
def test_split_keys_are_keys_and_all_different(seed, num):
    keys = random.split(random.key(seed), num)
    assert keys.shape == (num, 2)
    assert len({tuple(key.tolist()) for key in (*keys, random.key(seed))}) == num + 1
    for key in keys:
        assert not key.flags.writeable
        random.bits(key, (1,))


@given(SEEDS, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_folding_in_different_numbers_gives_different_keys(seed, a, b):
    one, other = (random.fold_in(random.key(seed), n) for n in (a, b))
    assert (one == other).all() == (a == b)


def test_splitting_folding_and_drawing_have_no_word_in_common():
    key = random.key(5)
    words = [random.bits(key, (64,)), random.split(key, 32).ravel()]
    words += [random.fold_in(key, n) for n in range(32)]
    together = np.concatenate(words)
    assert len(np.unique(together)) == together.size


@pytest.mark.parametrize("data", [-1, 2**64])
def test_a_folded_number_out_of_range_is_refused(data):
    with pytest.raises(ValueError, match="data must lie in 0"):
        random.fold_in(random.key(0), data)


def test_splitting_in_no_part_is_refused():
    with pytest.raises(ValueError, match="num must be at least 1"):
        random.split(random.key(0), 0)


@pytest.mark.parametrize("name", [*FLOATS, "bits", "bernoulli", "split"])
def test_an_integer_in_the_place_of_a_key_is_told_how_to_become_one(name):
    with pytest.raises(TypeError, match=rf"{name}: key must .* got int 3; make one with"):
        getattr(random, name)(3)


def test_several_keys_in_the_place_of_one_are_told_to_unpack():
    with pytest.raises(TypeError, match="several keys"):
        random.normal(random.split(random.key(0)))


# --- every distribution -------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@given(SEEDS, SHAPES)
@settings(max_examples=10)
def test_draws_have_the_shape_and_dtype_asked_for_and_are_read_only(name, dtype, seed, shape):
    draws = floating(name)(random.key(seed), shape, dtype)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == shape
    assert draws.dtype == dtype
    assert not draws.flags.writeable


@pytest.mark.parametrize("name", FLOATS)
@given(SEEDS)
@settings(max_examples=10)
def test_one_key_gives_the_same_draws_again(name, seed):
    first, again = (floating(name)(random.key(seed), (9,)) for _ in range(2))
    assert (first == again).all()


@pytest.mark.parametrize("name", FLOATS)
@given(SEEDS)
@settings(max_examples=20)
def test_draws_of_different_dtypes_agree_up_to_rounding(name, seed):
    wide = floating(name)(random.key(seed), (50,), "float64")
    narrow = floating(name)(random.key(seed), (50,), "float32")
    np.testing.assert_allclose(narrow, wide, rtol=2e-7, atol=1.2e-7)


@pytest.mark.parametrize("name", FLOATS)
def test_a_prefix_of_many_draws_is_what_fewer_draws_are(name):
    few, many = (floating(name)(random.key(1), (n,)) for n in (10, 100))
    assert (many[:10] == few).all()


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("uniform", stats.uniform),
        ("normal", stats.norm),
        ("gumbel", stats.gumbel_r),
        ("exponential", stats.expon),
        ("laplace", stats.laplace),
        ("logistic", stats.logistic),
        ("cauchy", stats.cauchy),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_follow_their_distribution(name, distribution, dtype):
    draws = floating(name)(random.key(11), (COUNT,), dtype).astype(np.float64)
    assert stats.kstest(draws, distribution.cdf).pvalue > 0.01


def test_draws_of_split_keys_are_independent():
    keys = random.split(random.key(2), 4)
    draws = np.stack([random.normal(key, (COUNT,)) for key in keys])
    correlation = np.corrcoef(draws) - np.eye(4)
    assert abs(correlation).max() < 4 / math.sqrt(COUNT)


def test_first_draws_of_counted_keys_are_uniform():
    key = random.key(3)
    draws = [float(random.uniform(random.fold_in(key, n))) for n in range(2000)]
    assert stats.kstest(draws, stats.uniform.cdf).pvalue > 0.01


def test_normal_draws_are_finite_even_at_the_extreme_words(monkeypatch):
    extremes = np.array([0, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(continuous, "bits", lambda *args: extremes)
    for name in FLOATS:
        assert np.isfinite(floating(name)(random.key(0), (2,), "float32")).all()
    assert random.normal(random.key(0), (2,)).sum() == 0


@pytest.mark.parametrize("name", FLOATS)
def test_an_integer_dtype_is_refused_for_floating_draws(name):
    with pytest.raises(TypeError, match=rf"random.{name}: dtype must be a floating dtype"):
        floating(name)(random.key(0), (2,), "int32")


@pytest.mark.parametrize("shape", [(-1,), (2, -3)])
def test_a_negative_size_is_refused(shape):
    with pytest.raises(ValueError, match="negative size"):
        random.normal(random.key(0), shape)


def test_a_shape_that_is_no_shape_is_refused():
    with pytest.raises(TypeError, match="shape must be a tuple of integers"):
        random.normal(random.key(0), (2.5,))


def test_an_integer_is_a_shape_of_one_axis():
    assert random.normal(random.key(0), 4).shape == (4,)


# --- parameters ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@given(SEEDS, st.floats(-1e4, 1e4), st.floats(1e-3, 1e3))
@settings(max_examples=30)
def test_uniform_draws_lie_in_the_half_open_interval(dtype, seed, low, width):
    low, high = (float(np.dtype(dtype).type(bound)) for bound in (low, low + width))
    if not low < high:
        return
    draws = random.uniform(random.key(seed), (500,), dtype, low, high)
    assert (draws >= low).all()
    assert (draws < high).all()


def test_uniform_takes_arrays_of_bounds():
    low = np.array([[0.0], [10.0]])
    draws = random.uniform(random.key(0), (2, 1000), "float32", low, low + np.ones(1))
    assert draws.dtype == np.float32
    assert ((draws >= low) & (draws < low + 1)).all()


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (0.0, math.nan)]
)
def test_uniform_refuses_bounds_out_of_order_or_reach(low, high):
    with pytest.raises(ValueError, match="minval must lie below maxval"):
        random.uniform(random.key(0), (), "float64", low, high)


def test_bounds_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"uniform: minval must .* shape \(2,\), got float64\[3\]"):
        random.uniform(random.key(0), (2,), "float64", np.zeros(3))


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (0.5, 1), (-math.inf, 0), (6, 7), (-9, -8)])
def test_truncated_normal_follows_its_distribution(low, high):
    draws = random.truncated_normal(random.key(4), low, high, (COUNT,))
    assert ((draws >= low) & (draws <= high)).all()
    assert stats.kstest(draws, stats.truncnorm(low, high).cdf).pvalue > 0.01


def test_truncated_normal_takes_its_shape_from_its_bounds():
    assert random.truncated_normal(random.key(0), np.zeros((3, 1)), np.ones(2)).shape == (3, 2)


def test_truncated_normal_refuses_bounds_out_of_order():
    with pytest.raises(ValueError, match="lower must lie below upper"):
        random.truncated_normal(random.key(0), 1, 1, (2,))


def test_bernoulli_is_true_as_often_as_asked():
    p = np.array([0.0, 0.1, 0.5, 1.0])
    draws = random.bernoulli(random.key(0), p, (COUNT, 4))
    assert draws.dtype == bool
    np.testing.assert_allclose(draws.mean(axis=0), p, atol=0.015)
    assert random.bernoulli(random.key(0), p).shape == (4,)
    assert random.bernoulli(random.key(0)).shape == ()


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, np.array([0.5, 2.0])])
def test_bernoulli_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="p must lie in"):
        random.bernoulli(random.key(0), p)


def test_categorical_follows_the_softmax_of_its_logits():
    logits = np.log(np.array([0.1, 0.2, 0.7], dtype=np.float32)) + 5
    draws = random.categorical(random.key(0), logits, shape=(COUNT,))
    assert draws.dtype == np.int64
    np.testing.assert_allclose(np.bincount(draws) / COUNT, [0.1, 0.2, 0.7], atol=0.015)


def test_categorical_puts_further_draws_in_front():
    logits = np.zeros((2, 5, 3))
    assert random.categorical(random.key(0), logits).shape == (2, 5)
    assert random.categorical(random.key(0), logits, axis=1).shape == (2, 3)
    assert random.categorical(random.key(0), logits, shape=(7, 2, 5)).shape == (7, 2, 5)
    with pytest.raises(ValueError, match=r"shape \(7,\) does not end in \(2, 5\)"):
        random.categorical(random.key(0), logits, shape=(7,))


@pytest.mark.parametrize("logits", [np.float64(0.0), np.zeros((2, 0))])
def test_categorical_refuses_logits_without_categories(logits):
    with pytest.raises(ValueError, match="no categories"):
        random.categorical(random.key(0), logits)


# --- integers and orders ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
@given(SEEDS, st.data())
@settings(max_examples=20)
def test_integers_lie_in_their_range(dtype, seed, data):
    limits = np.iinfo(dtype)
    low = data.draw(st.integers(limits.min, limits.max - 1))
    high = data.draw(st.integers(low + 1, limits.max))
    draws = random.randint(random.key(seed), (20,), low, high, dtype)
    assert draws.dtype == dtype
    assert all(low <= draw < high for draw in draws.tolist())


def test_integers_are_uniform():
    draws = random.randint(random.key(0), (COUNT,), -3, 4)
    assert stats.chisquare(np.bincount(draws + 3, minlength=7)).pvalue > 0.01


def test_integers_take_arrays_of_bounds():
    low = np.array([0, 100])
    draws = random.randint(random.key(0), (50, 2), low, low + 3)
    assert ((draws >= low) & (draws < low + 3)).all()
    assert random.randint(random.key(0), (), 0, 9).shape == ()
    assert random.randint(random.key(0), (0,), 0, 9).shape == (0,)


def test_integers_refuse_bad_bounds():
    key = random.key(0)
    with pytest.raises(ValueError, match="minval must lie below maxval"):
        random.randint(key, (2,), 3, 3)
    with pytest.raises(ValueError, match=r"uint8 holds 0 \.\. 255, but .* maxval 300"):
        random.randint(key, (2,), 0, 300, "uint8")
    with pytest.raises(TypeError, match="minval must be integers"):
        random.randint(key, (2,), 0.5, 3)
    with pytest.raises(TypeError, match="maxval must be integers"):
        random.randint(key, (2,), 0, 2**70)
    with pytest.raises(TypeError, match="dtype must be an integer dtype"):
        random.randint(key, (2,), 0, 3, "float32")


@given(SEEDS, st.integers(0, 60))
def test_a_permutation_holds_every_number_once(seed, count):
    order = random.permutation(random.key(seed), count)
    assert sorted(order.tolist()) == list(range(count))
    assert not order.flags.writeable


def test_all_permutations_are_equally_likely():
    keys = random.split(random.key(0), 6000)
    orders = [tuple(random.permutation(key, 3).tolist()) for key in keys]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 0.01


def test_permuting_an_array_moves_whole_parts_of_it():
    x = np.arange(12).reshape(3, 4)
    by_rows = random.permutation(random.key(1), x)
    assert sorted(by_rows[:, 0].tolist()) == [0, 4, 8]
    assert (by_rows - by_rows[:, :1] == np.arange(4)).all()
    by_columns = random.permutation(random.key(1), x, axis=-1)
    assert (by_columns[1] - by_columns[0] == 4).all()
    assert x.flags.writeable


def test_permutation_refuses_what_it_cannot_permute():
    with pytest.raises(ValueError, match="x must be at least 0"):
        random.permutation(random.key(0), -1)
    with pytest.raises(TypeError, match="x must be an integer"):
        random.permutation(random.key(0), 1.5)
    with pytest.raises(ValueError, match="has no axis 2"):
        random.permutation(random.key(0), np.zeros((2, 2)), axis=2)


def test_choice_without_replacement_takes_nothing_twice():
    drawn = random.choice(random.key(0), np.arange(10) * 2, (10,), replace=False)
    assert sorted(drawn.tolist()) == list(range(0, 20, 2))
    p = np.array([0.5, 0.5, 0.0])
    assert sorted(random.choice(random.key(0), 3, (2,), False, p).tolist()) == [0, 1]


def test_choice_follows_its_probabilities():
    p = np.array([0.1, 0.2, 0.7])
    drawn = random.choice(random.key(0), 3, (COUNT,), p=p)
    np.testing.assert_allclose(np.bincount(drawn) / COUNT, p, atol=0.015)


def test_choice_puts_the_draws_in_front_of_what_is_left_of_the_array():
    a = np.arange(24).reshape(2, 3, 4)
    assert random.choice(random.key(0), a, (5, 6), axis=1).shape == (5, 6, 2, 4)
    assert random.choice(random.key(0), a).shape == (3, 4)


def test_choice_refuses_what_cannot_be_drawn():
    key = random.key(0)
    with pytest.raises(ValueError, match="cannot draw 4 of 3 elements without replacement"):
        random.choice(key, 3, (4,), replace=False)
    with pytest.raises(ValueError, match="cannot draw 1 of 0 elements"):
        random.choice(key, np.zeros((0, 2)))
    with pytest.raises(ValueError, match="3 probabilities that sum to 1"):
        random.choice(key, 3, p=np.array([0.5, 0.6, 0.1]))
    with pytest.raises(ValueError, match="only 1 have a probability above 0"):
        random.choice(key, 2, (2,), replace=False, p=np.array([1.0, 0.0]))


# --- with the rest of fdbr ----------------------------------------------------------


def test_uniform_draws_are_differentiable_with_respect_to_their_bounds():
    key = random.key(0)
    u = random.uniform(key, (5,))

    def total(low, high):
        return random.uniform(key, (5,), "float64", low, high).sum()

    np.testing.assert_allclose(fdbr.grad(total)(1.0, 3.0), (1 - u).sum())
    np.testing.assert_allclose(fdbr.grad(lambda high: total(1.0, high))(3.0), u.sum())


def test_uniform_draws_keep_their_dtype_when_a_bound_is_traced():
    def total(high):
        draws = random.uniform(random.key(0), (5,), "float32", 0.0, high)
        assert draws.dtype == np.float32
        return draws.sum()

    assert fdbr.grad(total)(np.full(5, 2.0)).dtype == np.float64


def test_permuting_a_traced_array_permutes_its_gradient_back():
    key, x, weight = random.key(0), np.arange(5.0), np.arange(5.0)
    order = random.permutation(key, 5)
    grad = fdbr.grad(lambda x: (random.permutation(key, x) * weight).sum())(x)
    np.testing.assert_array_equal(grad[order], weight)


def test_bounds_in_the_place_of_the_shape_and_the_dtype_are_an_error_that_says_so():
    with pytest.raises(TypeError, match="the arguments after key are shape and dtype, and 1 is no"):
        random.uniform(random.key(0), -1, 1)
