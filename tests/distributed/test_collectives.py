"""What each collective gives, on every rank."""

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


def test_a_rank_that_does_not_come_is_named():
    def f(comm):
        if comm.rank != 1:
            d.barrier(comm)

    with pytest.raises(d.CollectiveTimeoutError, match=r"waited 0\.1 s for rank 1"):
        d.run_in_threads(f, 3, timeout=0.1)
