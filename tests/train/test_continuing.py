"""Resuming within an epoch: every example once, or an error."""

import collections
import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdbr import distributed, random, train


def collect(state, batch):
    return [*state, *np.asarray(batch).reshape(-1).tolist()], {}


class Loader:
    """A loader like PyTorch's: an iterable in batches, with a new order for every pass."""

    def __init__(self, count, size, rng=None, length=True):
        self.count, self.size, self.rng = count, size, rng
        if length:
            self.__class__ = LoaderOfKnownLength

    def __iter__(self):
        order = np.arange(self.count) if self.rng is None else self.rng.permutation(self.count)
        for begin in range(0, self.count, self.size):
            yield order[begin : begin + self.size]


class LoaderOfKnownLength(Loader):
    def __len__(self):
        return -(-self.count // self.size)


class Backwards:
    def __call__(self, key, epoch):
        return np.roll(np.arange(self.count)[::-1], epoch)

    def __init__(self, count):
        self.count = count


RNG = np.random.default_rng(0)
SOURCES = {
    "batches": lambda n, size: train.Batches(np.arange(n), size),
    "shuffled": lambda n, size: train.Batches(np.arange(n), size, key=random.key(0)),
    "sampled": lambda n, size: train.Batches(np.arange(n), size, sampler=Backwards(n)),
    "subset": lambda n, size: train.Batches(train.subset(np.arange(n), np.arange(n)[::-1]), size),
    "stream": lambda n, size: train.Stream(lambda epoch: range(n), size),
    "windows": lambda n, size: train.Stream(lambda epoch: range(n), size, (0, 1), 4, random.key(0)),
    "prefetched": lambda n, size: train.prefetch(train.Batches(np.arange(n), size), workers=1),
    "shared": lambda n, size: distributed.share(
        train.Batches(np.arange(n), size), distributed.serial()
    ),
    "list": lambda n, size: list(Loader(n, size)),
    "iterator": lambda n, size: iter(Loader(n, size)),
    "loader": lambda n, size: Loader(n, size),
    "stream of a loader": lambda n, size: Loader(n, size, length=False),
    "shuffling loader": lambda n, size: Loader(n, size, RNG),
    "shuffling stream": lambda n, size: Loader(n, size, RNG, length=False),
}


@given(
    st.sampled_from(sorted(SOURCES)),
    st.sampled_from(sorted(SOURCES)),
    st.integers(1, 20),
    st.integers(0, 2),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 25),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_a_resumed_epoch_has_every_example_once_or_raises(
    first, second, count, more, size, new, stop, same
):
    """Whatever changes between the parts of a run."""
    if same:
        second, new, more = first, size, 0
    epochs = 1 if "iterator" in (first, second) else 2
    reports = train.fit(collect, [], SOURCES[first](count, size), epochs=epochs)
    seen = list(itertools.islice(reports, stop))
    reports.close()
    last = seen[-1]
    error = None
    try:
        rest = train.fit(
            collect, None, SOURCES[second](count + more, new), epochs=epochs, resume=last
        )
        final = [last, *rest][-1]
    except ValueError as raised:
        error = raised
    if error is not None:
        assert "would continue it in another order" in str(error) or "no batch after" in str(error)
        assert not same or "shuffling" in first
        assert "iterator" in (first, second) or last.position.batch > 0
        return
    finished = count * last.position.epoch
    rest = final.state[finished:]
    # A source without a length may have grown at its end.
    length = max(rest, default=-1) + 1
    assert length in (0, count, count + more)
    left = epochs - last.position.epoch
    assert collections.Counter(rest) == dict.fromkeys(range(length), left)


CHANGES = {
    "size": lambda: train.Batches(np.arange(50), 8, key=random.key(0)),
    "key": lambda: train.Batches(np.arange(50), 4, key=random.key(1)),
    "number of examples": lambda: train.Batches(np.arange(51), 4, key=random.key(0)),
    "drop_last": lambda: train.Batches(np.arange(50), 4, key=random.key(0), drop_last=True),
    "choice of examples": lambda: train.Batches(
        train.subset(np.arange(99), np.arange(50)), 4, key=random.key(0)
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_error_names_what_changed(name):
    before = train.subset(np.arange(99), np.arange(1, 51)) if "choice" in name else np.arange(50)
    batches = train.Batches(before, 4, key=random.key(0))
    last = list(train.fit(collect, [], batches, iterations=17))[-1]
    with pytest.raises(ValueError, match=f"within epoch 1, after batch 4, .*{name} was"):
        train.fit(collect, None, CHANGES[name](), epochs=2, resume=last)
    between = list(train.fit(collect, [], batches, iterations=13))[-1]
    assert list(train.fit(collect, None, CHANGES[name](), epochs=2, resume=between))
    skipped = train.fit(
        collect, last.state, CHANGES[name](), epochs=3, position=train.Position(2), iteration=17
    )
    assert next(skipped).iteration == 18


def test_a_sampler_is_compared_in_the_epoch_of_the_position():
    def late(shift):
        return lambda key, epoch: np.roll(np.arange(8), shift * (epoch >= 2))

    last = list(train.fit(collect, [], train.Batches(np.arange(8), 2, sampler=late(1)), epochs=3))
    batches = train.Batches(np.arange(8), 2, sampler=late(3))
    assert list(train.fit(collect, None, batches, epochs=3, resume=last[4]))
    with pytest.raises(ValueError, match="order of the sampler was"):
        train.fit(collect, None, batches, epochs=3, resume=last[8])


def test_the_number_of_shards_may_not_change_within_an_epoch():
    def stream(shards):
        return train.Stream(lambda epoch: range(12), 2, shard=(0, shards))

    last = list(train.fit(collect, [], stream(2), iterations=2))[-1]
    with pytest.raises(ValueError, match="number of shards was 2, now 3"):
        train.fit(collect, None, stream(3), epochs=1, resume=last)


def test_a_shorter_source_of_a_zip_is_compared_between_epochs_too():
    def pair(size):
        few = train.Batches(np.arange(6), size)
        return train.zip(train.Batches(np.arange(8), 2), few)

    def ignore(state, batch):
        return state, {}

    last = list(train.fit(ignore, 0, pair(2), epochs=1))[-1]
    assert len(list(train.fit(ignore, 0, pair(2), epochs=2, resume=last))) == 4
    with pytest.raises(ValueError, match=r"before epoch 1, .*size of source 1 was 2, now 3"):
        train.fit(ignore, 0, pair(3), epochs=2, resume=last)


def test_snapshots_hold_the_settings(tmp_path):
    batches = train.Batches(np.arange(50), 4)
    reports = train.fit(lambda s, b: (s + 1, {}), 0, batches, iterations=3)
    assert len(list(train.pipe(reports, train.snapshot(tmp_path)))) == 3
    report = train.resume(tmp_path, like=0)
    with pytest.raises(ValueError, match="size was 4, now 5"):
        train.fit(lambda s, b: (s + 1, {}), 0, train.Batches(np.arange(50), 5), resume=report,
                  epochs=1)  # fmt: skip


def test_ranks_compare_their_own_settings(tmp_path):
    def run(size):
        def f(comm):
            part = distributed.scatter_dataset(np.arange(8), comm, random.key(comm.rank))
            report = distributed.resume(tmp_path, 0, comm)
            reports = train.fit(
                lambda s, b: (s + 1, {}), 0, train.Batches(part, size), epochs=1, resume=report
            )
            stage = distributed.snapshot(tmp_path, comm, train.every(iterations=1))
            return len(list(itertools.islice(train.pipe(reports, stage), 2)))

        return distributed.run_in_threads(f, 2)

    assert run(1) == [2, 2]
    assert run(1) == [2, 2]
    for path in tmp_path.glob("*4.safetensors"):
        path.unlink()
    with pytest.raises(ValueError, match="size was 1, now 2"):
        run(2)


def test_a_loader_that_cannot_be_compared_is_warned_of():
    report = train.Report(2, 0, {}, [], train.Position(0, 2), 0.0)
    with pytest.warns(RuntimeWarning, match="nothing tells whether it gives the same batches"):
        list(train.fit(collect, [], Loader(9, 2), epochs=1, resume=report))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(train.fit(collect, [], list(Loader(9, 2)), epochs=1, resume=report))


def test_a_state_of_another_structure_is_warned_of():
    batches = [np.zeros(1)] * 3
    report = next(train.fit(lambda s, b: (s, {}), {"w": np.zeros(2)}, batches, epochs=1))
    for other in ({"w": np.zeros(3)}, {"w": np.zeros(2), "b": 0.0}, {}):
        with pytest.warns(RuntimeWarning, match="another structure"):
            train.fit(lambda s, b: (s, {}), other, batches, epochs=1, resume=report)
