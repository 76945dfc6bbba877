"""Examples that can only be read one after another."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import random, train

KEY = random.key(0)


def flat(parts):
    return [*itertools.chain(*parts)]


def rows(stream, epoch=0, start=0):
    return [batch.tolist() for batch in stream.epoch(epoch, start)]


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 6), st.integers(0, 2), st.data())
def test_an_epoch_begun_later_is_the_rest_of_it(count, size, window, epoch, data):
    key = KEY if window > 1 else None
    stream = train.Stream(lambda epoch: range(count), size, window=window, key=key)
    whole = rows(stream, epoch)
    assert sorted(flat(whole)) == list(range(count))
    start = data.draw(st.integers(0, len(whole)))
    if start < len(whole):
        assert rows(stream, epoch, start) == whole[start:]


@given(st.integers(3, 30), st.integers(1, 3), st.booleans())
def test_shards_divide_the_examples(count, shards, shuffled):
    options = {"window": 4, "key": KEY} if shuffled else {}
    parts = [
        flat(rows(train.Stream(lambda epoch: range(count), 2, (i, shards), **options)))
        for i in range(shards)
    ]
    assert sorted(flat(parts)) == list(range(count))
    assert all(x % shards == i for i, part in enumerate(parts) for x in part)


def test_an_iterable_that_can_skip_is_asked_to():
    class Skipping:
        def __init__(self, begin=0):
            self.begin = begin

        def __iter__(self):
            return iter(range(self.begin, 10))

        def skip(self, n):
            skipped.append(n)
            return Skipping(self.begin + n)

    skipped = []
    assert rows(train.Stream(Skipping(), 2, shard=(1, 2)), start=1) == [[5, 7], [9]]
    assert skipped == [4]


def test_a_window_mixes_and_differs_from_epoch_to_epoch():
    stream = train.Stream(lambda epoch: range(3000), 3000, window=100, key=KEY)
    first, second = rows(stream, 0)[0], rows(stream, 1)[0]
    assert first != second
    assert first != sorted(first)
    assert rows(stream, 0)[0] == first


def test_a_stream_without_end_is_read_no_further_than_asked():
    def counting(epoch):
        number = 0
        while True:
            yield number
            number += 1

    epoch = train.Stream(counting, 3).epoch(0)
    assert next(epoch).tolist() == [0, 1, 2]
    epoch.close()


@pytest.mark.parametrize("source", [iter([1]), (i for i in range(3)), 3])
def test_what_cannot_begin_anew_is_refused(source):
    with pytest.raises(TypeError, match="a function of the epoch"):
        train.Stream(source, 1)


def test_an_epoch_without_a_batch_is_an_error():
    with pytest.raises(ValueError, match="epoch 2 has no batch"):
        list(train.Stream(lambda epoch: [], 1).epoch(2))


@pytest.mark.parametrize("options", [{"window": 3}, {"key": KEY}, {"shard": (2, 2)}])
def test_settings_that_do_not_fit_are_refused(options):
    with pytest.raises(ValueError, match=r"fdbr\.train\.Stream"):
        train.Stream(lambda epoch: [np.zeros(1)], 1, **options)
