"""What each collective gives, on every rank."""

import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
import fdbr.testing
from fdbr import distributed as d
from fdbr import tree
from fdbr.distributed.structures import text_of


def test_each_collective_gives_what_it_says():
    def f(comm):
        x = np.arange(6.0).reshape(3, 2) + 10 * comm.rank
        return {
            "sum": d.all_reduce(x, comm),
            "mean": d.all_reduce(x, comm, "mean"),
            "max": d.reduce(x, comm, "max", root=1),
            "broadcast": d.broadcast(x, comm, root=2),
            "gather": d.gather(x, comm),
            "all_gather": d.all_gather(x, comm),
            "scatter": d.scatter(x if comm.rank == 1 else None, comm, root=1),
            "reduce_scatter": d.reduce_scatter(x, comm),
            "all_to_all": d.all_to_all(x, comm),
        }

    ranks = d.run_in_threads(f, 3)
    xs = np.stack([np.arange(6.0).reshape(3, 2) + 10 * rank for rank in range(3)])
    for rank, found in enumerate(ranks):
        np.testing.assert_array_equal(found["sum"], xs.sum(0))
        np.testing.assert_array_equal(found["mean"], xs.mean(0))
        np.testing.assert_array_equal(found["broadcast"], xs[2])
        np.testing.assert_array_equal(found["all_gather"], xs)
        np.testing.assert_array_equal(found["scatter"], xs[1, rank : rank + 1])
        np.testing.assert_array_equal(found["reduce_scatter"], xs.sum(0)[rank : rank + 1])
        np.testing.assert_array_equal(found["all_to_all"], xs[:, rank])
        assert (found["max"] is None) is (rank != 1)
        assert (found["gather"] is None) is (rank != 0)
    np.testing.assert_array_equal(ranks[1]["max"], xs.max(0))
    np.testing.assert_array_equal(ranks[0]["gather"], xs)


def test_ranks_that_call_different_collectives_are_told_who_called_what():
    def f(comm):
        if comm.rank == 0:
            d.all_reduce(np.ones(2), comm)
        else:
            d.all_gather(np.ones(2), comm)

    with pytest.raises(d.MismatchError, match=r"rank 0: all_reduce\(op='sum'\) of float64\[2\] at"):
        d.run_in_threads(f, 2)


X = np.ones((2, 2))
CALLS = {
    "barrier()": d.barrier,
    "all_gather()": lambda c: d.all_gather(X, c),
    "all_to_all()": lambda c: d.all_to_all(X, c),
    "all_gather_object()": lambda c: d.all_gather_object(1, c),
    "split()": lambda c: c.split(0),
    **{f"all_reduce(op={o!r})": lambda c, o=o: d.all_reduce(X, c, o) for o in ("sum", "max")},
    **{
        f"reduce_scatter(op={o!r})": lambda c, o=o: d.reduce_scatter(X, c, o)
        for o in ("sum", "min")
    },
    **{
        f"reduce(op={o!r}, root={r})": lambda c, o=o, r=r: d.reduce(X, c, o, r)
        for o in ("mean", "max")
        for r in (0, 1)
    },
    **{
        f"{f.__name__}(root={r})": lambda c, f=f, x=x, r=r: f(x, c, root=r)
        for f, x in (
            *((d.broadcast, X), (d.gather, X), (d.scatter, X)),
            *((d.broadcast_object, 1), (d.gather_object, 1), (d.scatter_object, "ab")),
        )
        for r in (0, 1)
    },
}


def test_of_any_two_calls_each_is_told_of_by_what_was_written():
    def together(*calls):
        def f(comm):
            with pytest.raises(d.MismatchError) as caught:
                CALLS[calls[comm.rank]](comm)
            return str(caught.value)

        return d.run_in_threads(f, 2)

    for calls in itertools.permutations(CALLS, 2):
        for message in together(*calls):
            for rank, call in enumerate(calls):
                assert f"rank {rank}: {call}" in message
    for call in CALLS.values():
        d.run_in_threads(call, 2)


INNER = {"inner": [X, None]}
TREES = [X, None, [X], (X,), {"a": X}, {"b": X}, (X, None), {"a": X, "b": None}, INNER, [INNER]]


def _given(f, *trees):
    """What comes of the ranks' trees, or the error that all ranks get."""

    def one(comm):
        try:
            return f(trees[comm.rank], comm)
        except d.MismatchError as error:
            return str(error)

    return d.run_in_threads(one, len(trees))


def _updated(x, comm):
    return d.average_gradients(comm).update(x, ())[0]


@pytest.mark.parametrize(
    "f", [d.all_reduce, d.all_gather, d.all_to_all, d.reduce_scatter, d.broadcast, _updated]
)
def test_trees_of_different_structures_are_not_taken_for_one_another(f):
    for two in itertools.permutations(TREES[:1] + TREES[2:], 2):
        for rank, message in enumerate(_given(f, *two)):
            assert "trees of the same structure" in message
            shown = [text_of(tree.structure(one)) for one in two]
            assert f" in {shown[rank]} at" in message
    for one in TREES:
        found = _given(f, one, one)
        assert tree.structure(found[0]) == tree.structure(found[1]) == tree.structure(one)


def test_of_large_trees_the_place_is_shown_where_they_part():
    def large(i):
        return {f"layer{k}": {"w": X, "b": None if k == i else X} for k in range(100)}

    few = {**large(41), "layer42": {"w": X, "b": None}, "layer41": {"w": X, "b": X}}
    for message in _given(d.all_reduce, large(41), few):
        assert "'layer41': {'b': None, 'w': *}" in message
        assert "'layer42': {'b': None, 'w': *}" in message
        assert len(message) < 1000


def test_static_fields_may_be_a_ranks_own():
    @fdbr.frozen
    class Part:
        x: object
        rank: int = fdbr.static()

    found = d.run_in_threads(lambda c: d.all_reduce(Part(X, c.rank), c), 2)
    assert [one.rank for one in found] == [0, 1]


@given(fdbr.testing.trees(st.just(X)), fdbr.testing.trees(st.just(X)))
def test_texts_of_structures_are_equal_where_these_are(one, other):
    one, other = tree.structure(one), tree.structure(other)
    assert (text_of(one) == text_of(other)) is (one == other)


def test_errors_of_arrays_name_the_function_that_was_called():
    for f in (d.all_reduce, d.reduce, d.reduce_scatter):
        with pytest.raises(TypeError, match=rf"^fdbr\.distributed\.{f.__name__}: complex"):
            f(np.ones(2, complex), d.serial(), "max")


def test_a_rank_that_does_not_come_is_named():
    def f(comm):
        if comm.rank != 1:
            return d.barrier(comm)
        while not comm.transport._collective.broken:
            time.sleep(0.01)
        return None

    with pytest.raises(d.CollectiveTimeoutError, match=r"waited 0\.1 s for rank 1"):
        d.run_in_threads(f, 3, timeout=0.1)


def test_a_part_that_is_made_while_another_rank_fails_hears_of_it():
    last_step, failed = threading.Event(), threading.Event()

    def f(comm):
        part = comm.split(comm.rank // 2)
        if comm.rank == 2:
            last_step.wait(5)
            raise OSError("gone")
        if comm.rank == 0:
            try:
                part.split(0)
            finally:
                failed.set()
        swap = part.transport._swap

        def late(value, what):
            if value is None:  # rank 0 brings the new part
                last_step.set()
                failed.wait(5)
            return swap(value, what)

        part.transport._swap = late
        return d.barrier(part.split(0))

    with pytest.raises(OSError, match="gone"):
        d.run_in_threads(f, 3, timeout=86400)
