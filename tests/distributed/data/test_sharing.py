"""Each rank has its share of the same global batches."""

import itertools
import pickle
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdbr import distributed as d
from fdbr import random, train


def shares(source, size, epoch=0, start=0):
    """The batches of each rank: a list of lists."""
    return d.run_in_threads(lambda comm: list(d.share(source, comm).epoch(epoch, start)), size)


def put_together(parts):
    """Shares of batches, by rank, as batches."""
    return [np.concatenate(batch) for batch in zip(*parts, strict=True)]


orders = {
    "in order": {},
    "shuffled": {"key": random.key(3)},
    "weighed": {
        "key": random.key(3),
        "sampler": train.WeightedSampler(np.arange(1, 12), count=9),
    },
    "in buckets": {"key": random.key(3), "sampler": train.BucketSampler(np.arange(11), 3)},
    "without the last": {"drop_last": True},
}


@given(
    size=st.integers(1, 5),
    batch=st.integers(1, 11),
    order=st.sampled_from(sorted(orders)),
    epoch=st.integers(0, 3),
)
def test_the_shares_of_all_ranks_are_the_global_batches(size, batch, order, epoch):
    batches = train.Batches(np.arange(22.0).reshape(11, 2), batch, **orders[order])
    start = epoch % len(batches)
    whole = list(batches.epoch(epoch, start))
    parts = shares(batches, size, epoch, start)
    for one, other in zip(put_together(parts), whole, strict=True):
        np.testing.assert_array_equal(one, other)
    for batch in zip(*parts, strict=True):
        lengths = [len(share) for share in batch]
        assert max(lengths) - min(lengths) <= 1
        assert lengths == sorted(lengths, reverse=True)
        assert {share.shape[1:] for share in batch} == {(2,)}
        assert {share.dtype for share in batch} == {np.dtype(float)}


@given(size=st.integers(1, 4), keyed=st.booleans())
def test_streams_are_shared_as_well(size, keyed):
    more = {"key": random.key(1), "window": 4} if keyed else {}
    stream = train.Stream(lambda epoch: iter(range(epoch, epoch + 7)), 3, **more)
    whole = list(stream.epoch(2, 1))
    found = put_together(shares(stream, size, 2, 1))
    assert [x.tolist() for x in found] == [x.tolist() for x in whole]


def test_plain_sequences_of_batches_are_cut():
    batches = [
        {"x": np.arange(5), "texts": ["a"] * 5, "rate": 0.5},
        {"x": np.arange(2), "texts": []},
    ]
    batches[1] = {**batches[0], "x": np.arange(5, 10)}
    first, second = shares(batches, 2)
    assert first[1]["x"].tolist() == [5, 6, 7]
    assert second[0]["x"].tolist() == [3, 4]
    assert (second[0]["texts"], second[0]["rate"]) == (["a"] * 2, 0.5)
    assert d.run_in_threads(lambda comm: len(d.share(batches, comm)), 2) == [2, 2]
    only = d.run_in_threads(lambda comm: list(d.share(iter([np.arange(3)]), comm)), 2)
    assert [[x.tolist() for x in batches] for batches in only] == [[[0, 1]], [[2]]]


@pytest.mark.parametrize("workers", [None, "threads", "pickled"])
def test_only_the_share_is_read(workers):
    source = train.Batches(Counted(10), 4)

    def f(comm):
        own = d.share(source, comm)
        if workers is not None:
            own = pickle.loads(pickle.dumps(own)) if workers == "pickled" else own
            own = train.prefetch(own, 1)
        return [batch.tolist() for batch in own.epoch(0)]

    Counted.seen.clear()
    found = d.run_in_threads(f, 2)
    assert found == [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]
    assert sorted(Counted.seen) == list(range(10))


class Counted:
    """A dataset that notes which examples are read."""

    seen: ClassVar = []

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.seen.append(index)
        return np.int64(index)


def test_what_is_read_ahead_and_side_by_side_can_be_shared():
    batches = train.Batches(np.arange(8), 4, random.key(0))
    pair = train.zip(a=batches, b=train.prefetch(train.Batches(np.arange(3), 3), 1))
    whole = list(pair.epoch(1))
    parts = shares(pair, 2, 1)
    for i, name in itertools.product(range(2), "ab"):
        found = np.concatenate([parts[0][i][name], parts[1][i][name]])
        np.testing.assert_array_equal(found, whole[i][name])


def test_collated_batches_have_empty_shares_too():
    texts = [np.arange(n) for n in (3, 1, 2)]
    padded = train.Batches(texts, 2, collate=train.collate_padded(masks=True))
    last = [rank[-1] for rank in shares(padded, 2)]
    assert [(x.shape, mask.shape) for x, mask in last] == [((1, 2), (1, 2)), ((0, 2), (0, 2))]
    ragged = train.Batches(texts, 2, collate=train.collate_ragged)
    assert [len(rank[-1]) for rank in shares(ragged, 2)] == [1, 0]


def test_shares_lie_where_the_data_does(xp):
    data = {"x": xp.arange(7), "y": xp.ones((7, 2))}
    for source in (train.Batches(data, 3, random.key(0)), [data]):
        for rank in shares(source, 2):
            for batch in rank:
                assert all(type(leaf) is type(data["x"]) for leaf in batch.values())
    first, second = shares([data], 2)
    assert [part[0]["x"].tolist() for part in (first, second)] == [[0, 1, 2, 3], [4, 5, 6]]


def test_shares_of_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"a batch of 3 examples there is no part .*\[2\]"):
        shares([{"x": np.arange(3), "y": np.arange(2)}], 2)
    with pytest.raises(TypeError, match=r"fdbr\.distributed\.share: .*batches must have epoch"):
        d.share(3, d.serial())
    with pytest.raises(TypeError, match=r"fdbr\.distributed\.share: comm must be a communicator"):
        d.share([np.arange(3)], 2)


def run(source, steps, size, resume=None):
    """A run whose state is the sum over all examples, weighed by the step."""

    def f(comm):
        def step(state, batch):
            part = np.stack([batch.sum(), len(batch)]).astype(float)
            total = d.all_reduce(part, comm)
            return 0.5 * state + total[0] / total[1], {"own": len(batch)}

        *_, last = train.fit(
            step, np.zeros(()), d.share(source, comm), iterations=steps, resume=resume
        )
        return last

    return d.run_in_threads(f, size)


def test_a_run_goes_on_at_the_same_place_on_another_number_of_ranks():
    batches = train.Batches(np.arange(20.0) ** 2, 6, random.key(5))
    whole = run(batches, 11, 1)[0]
    for sizes in [(2, 3), (3, 1), (1, 4)]:
        first = run(batches, 6, sizes[0])[0]
        assert first.position == train.Position(1, 2)
        last = run(batches, 11, sizes[1], first)
        assert {float(report.state) for report in last} == {float(last[0].state)}
        np.testing.assert_allclose(last[0].state, whole.state, rtol=1e-14)
        assert last[0].position == whole.position


def test_batches_of_one_rank_go_to_all():
    def f(comm):
        own = train.Batches({"x": np.arange(5)}, 2, random.key(1)) if comm.rank == 1 else None
        source = d.broadcast_batches(own, comm, root=1)
        batches = [batch["x"] for epoch in (0, 1) for batch in source.epoch(epoch)]
        assert not any(x.flags.writeable for x in batches)
        return len(source), [x.tolist() for x in batches]

    first, second = d.run_in_threads(f, 2)
    own = train.Batches(np.arange(5), 2, random.key(1))
    assert first == second == (3, [x.tolist() for e in (0, 1) for x in own.epoch(e)])


def test_batches_that_one_rank_cannot_read_fail_everywhere():
    class Broken:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            raise OSError("no disk")

    errors = {}

    def f(comm):
        source = d.broadcast_batches(train.Batches(Broken(), 2) if not comm.rank else None, comm)
        try:
            list(source.epoch(0))
        except Exception as error:
            errors[comm.rank] = error

    d.run_in_threads(f, 2)
    assert isinstance(errors[0], OSError)
    assert "rank 0 could not read the next batch: OSError: no disk" in str(errors[1])
    with pytest.raises(TypeError, match="batches must be such as can be read again"):
        d.broadcast_batches(iter([1]), d.serial())


def test_a_random_key_can_be_made_the_same():
    def f(comm):
        key = random.key(comm.rank)
        batches = train.prefetch(train.Batches(np.arange(9), 4, key), 1)
        stream = train.Stream(range(9), 4, window=3, key=key)
        both = d.synchronized(train.zip(batches, train.Batches(np.arange(4), 2, key)), comm, root=1)
        found = d.synchronized(stream, comm, root=1)
        return (
            d.synchronized(key, comm).tolist(),
            [[x.tolist() for x in pair] for pair in both.epoch(0)],
            [x.tolist() for x in found],
        )

    first, second = d.run_in_threads(f, 2)
    assert first == second
    key = random.key(1)
    assert first[2] == [x.tolist() for x in train.Stream(range(9), 4, window=3, key=key)]
    with pytest.raises(TypeError, match=r"fdbr\.distributed\.synchronized: it takes a key"):
        d.synchronized([1], d.serial())


def test_each_rank_has_a_key_of_its_own():
    key = random.key(7)
    keys = d.run_in_threads(lambda comm: d.fold_in_rank(key, comm), 3)
    assert (
        len({k.tobytes() for k in keys} | {random.fold_in(key, i).tobytes() for i in range(3)}) == 6
    )
    assert d.fold_in_rank(key, d.serial()).tobytes() == keys[0].tobytes()
