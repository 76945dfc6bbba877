"""The order of examples: samplers and the batches that they make."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random, train

KEY = random.key(0)
COUNTS = st.integers(1, 40)
SIZES = st.integers(1, 9)
LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=40)


def flat(parts):
    return [*itertools.chain(*parts)]


def visited(batches, epoch=0, start=0):
    return [batch.tolist() for batch in batches.epoch(epoch, start)]


def permuting(labels):
    return {
        "random": train.RandomSampler(len(labels)),
        "sequential": train.SequentialSampler(len(labels)),
        "stratified": train.StratifiedSampler(labels),
        "bucketed": train.BucketSampler(labels, boundaries=[1, 2]),
        "in buckets of like counts": train.BucketSampler(labels, boundaries=3),
    }


NAMES = [*permuting([0])]


@pytest.mark.parametrize("name", NAMES)
@given(LABELS, SIZES, st.integers(0, 3))
def test_every_example_comes_once_an_epoch(name, labels, size, epoch):
    batches = train.Batches(np.arange(len(labels)), size, KEY, sampler=permuting(labels)[name])
    parts = visited(batches, epoch)
    assert sorted(flat(parts)) == list(range(len(labels)))
    assert len(parts) == len(batches)


@pytest.mark.parametrize("name", NAMES)
@given(LABELS, SIZES, st.integers(0, 3), st.data())
def test_an_epoch_begun_later_is_the_rest_of_it(name, labels, size, epoch, data):
    batches = train.Batches(np.arange(len(labels)), size, KEY, sampler=permuting(labels)[name])
    start = data.draw(st.integers(0, len(batches)))
    assert visited(batches, epoch, start) == visited(batches, epoch)[start:]


def test_the_random_sampler_gives_the_order_that_batches_have_by_themselves():
    own = train.Batches(np.arange(20), 3, KEY)
    assert visited(train.Batches(np.arange(20), 3, KEY, sampler=train.RandomSampler(20)), 2) == (
        visited(own, 2)
    )


def test_any_function_of_key_and_epoch_gives_an_order():
    sampler = lambda key, epoch: np.roll(np.arange(4), epoch)
    batches = train.Batches(np.arange(4), 2, sampler=sampler)
    assert visited(batches, 1) == [[3, 0], [1, 2]]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.integers(0, 3))
def test_weighted_examples_come_as_often_as_their_weights_say(weights, epoch):
    if not any(weights):
        weights[0] = 1
    sampler = train.WeightedSampler(weights, count=4000)
    found = np.bincount(sampler(KEY, epoch), minlength=len(weights)) / 4000
    p = np.array(weights) / sum(weights)
    assert (np.abs(found - p) <= 5 * np.sqrt(p * (1 - p) / 4000)).all()


def test_weights_may_be_of_any_size():
    for weights in ([1e308, 1e308, 0.0], [5e-324, 5e-324, 0.0]):
        order = train.WeightedSampler(weights, count=40)(KEY, 0)
        assert set(order.tolist()) == {0, 1}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.data())
def test_without_replacement_none_comes_twice_and_none_of_no_weight(weights, data):
    able = sum(weight > 0 for weight in weights)
    if not able:
        return
    count = data.draw(st.integers(1, able))
    order = train.WeightedSampler(weights, count, replace=False)(KEY, 0).tolist()
    assert len(set(order)) == len(order) == count
    assert all(weights[i] for i in order)


def test_without_replacement_heavy_examples_come_first():
    sampler = train.WeightedSampler([1, 1, 8], replace=False)
    first = np.bincount([sampler(KEY, epoch)[0] for epoch in range(400)], minlength=3) / 400
    np.testing.assert_allclose(first, [0.1, 0.1, 0.8], atol=0.08)


@given(LABELS, SIZES, st.integers(0, 3))
def test_each_stretch_of_a_stratified_order_has_the_classes_in_their_proportions(
    labels, size, epoch
):
    order = train.StratifiedSampler(labels)(KEY, epoch)
    classes = np.array(labels)[order]
    for label in set(labels):
        share = labels.count(label) / len(labels)
        for begin in range(0, len(labels) - size + 1, size):
            found = np.count_nonzero(classes[begin : begin + size] == label)
            assert abs(found - share * size) <= 2


@given(LABELS, SIZES, st.booleans())
def test_a_batch_is_of_one_bucket(lengths, size, drop):
    sampler = train.BucketSampler(lengths, boundaries=[2])
    made = sampler.batches(KEY, 0, size, drop)
    for batch in made:
        assert len({lengths[i] < 2 for i in batch}) == 1
        assert len(batch) == size or not drop


def test_buckets_of_like_counts_make_batches_of_like_lengths():
    lengths = np.asarray(random.randint(KEY, (1000,), 1, 101))
    sampler = train.BucketSampler(lengths, boundaries=10)
    padded = sum(lengths[b].max() * len(b) for b in sampler.batches(KEY, 0, 16, False))
    assert padded < 1.15 * lengths.sum()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: train.WeightedSampler([1.0, -1.0]), "must be finite and at least 0"),
        (lambda: train.WeightedSampler([0, 0]), "not all be 0"),
        (lambda: train.WeightedSampler([1, 0], replace=False), "1 examples have a weight above 0"),
        (lambda: train.BucketSampler([1, 2], boundaries=[3, 2]), "must be rising"),
        (lambda: train.Batches(np.arange(3), 2, sampler=lambda k, e: [0, 3]), "gives example 3"),
        (lambda: train.Batches(np.arange(3), 2, sampler=lambda k, e: [0.5]), "integers"),
        (lambda: train.Batches(np.arange(2), 1, sampler=train.RandomSampler(2)), "give Batches a"),
        (
            lambda: train.Batches(
                np.arange(2), 4, sampler=train.BucketSampler([1, 9], [5]), drop_last=True
            ),
            "makes no batch of 4",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_sampler_and_shuffle_are_two_orders():
    with pytest.raises(TypeError, match="leave shuffle out"):
        train.Batches(np.arange(3), 1, KEY, shuffle=True, sampler=train.RandomSampler(3))


def test_every_epoch_must_be_as_long():
    batches = train.Batches(np.arange(9), 2, sampler=lambda key, epoch: np.arange(3 + epoch))
    with pytest.raises(ValueError, match="gives 3 examples in epoch 0, but 4 in epoch 1"):
        batches.epoch(1)
