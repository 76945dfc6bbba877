"""What each collective gives, on every rank."""

import itertools

import numpy as np
import pytest

from fdbr import distributed as d


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


def test_errors_of_arrays_name_the_function_that_was_called():
    for f in (d.all_reduce, d.reduce, d.reduce_scatter):
        with pytest.raises(TypeError, match=rf"^fdbr\.distributed\.{f.__name__}: complex"):
            f(np.ones(2, complex), d.serial(), "max")


def test_a_rank_that_does_not_come_is_named():
    def f(comm):
        if comm.rank != 1:
            d.barrier(comm)

    with pytest.raises(d.CollectiveTimeoutError, match=r"waited 0\.1 s for rank 1"):
        d.run_in_threads(f, 3, timeout=0.1)
