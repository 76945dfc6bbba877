"""Ranks that wait for a rank that has returned: an error at once, which says who and where."""

import re
import time

import numpy as np
import pytest

from fdbr import distributed
from fdbr.train import optim

ONES = np.ones(3)
FOREVER = 600.0  # a test that waits for it is ended by its own timeout

COLLECTIVES = {
    "all_reduce": lambda comm: distributed.all_reduce(ONES, comm),
    "reduce": lambda comm: distributed.reduce(ONES, comm, root=1),
    "broadcast": lambda comm: distributed.broadcast(ONES, comm, root=1),
    "all_gather": lambda comm: distributed.all_gather(ONES, comm),
    "gather": lambda comm: distributed.gather(ONES, comm, root=1),
    "all_to_all": lambda comm: distributed.all_to_all(ONES, comm),
    "reduce_scatter": lambda comm: distributed.reduce_scatter(ONES, comm),
    "barrier": distributed.barrier,
    "all_gather_object": lambda comm: distributed.all_gather_object(1, comm),
    "broadcast_object": lambda comm: distributed.broadcast_object(1, comm),
    "split": lambda comm: comm.split(0),
}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_rank_that_has_returned_is_not_waited_for(name, late):
    def f(comm):
        if comm.rank == 1:
            if late:
                time.sleep(0.02)
            return
        COLLECTIVES[name](comm)

    text = rf"{name}.*: rank 1 returned from the function without calling it, and rank"
    with pytest.raises(distributed.RankFailedError, match=text) as caught:
        distributed.run_in_threads(f, 3, timeout=FOREVER)
    assert re.search(r"ranks? 0|ranks? 2|ranks 0, 2", str(caught.value))


def test_a_message_from_a_rank_that_has_returned_is_not_waited_for():
    def f(comm):
        if comm.rank == 0:
            distributed.receive(ONES, comm, 1)

    text = r"receive.*rank 1 returned from the function without sending.*and rank 0 waited"
    with pytest.raises(distributed.RankFailedError, match=text):
        distributed.run_in_threads(f, 3, timeout=FOREVER)


def test_a_message_that_was_sent_before_the_return_arrives():
    def f(comm):
        if comm.rank == 1:
            return distributed.send(ONES, comm, 0)
        if comm.rank == 0:
            time.sleep(0.02)
            return distributed.receive(ONES, comm, 1).tolist()
        return None

    assert distributed.run_in_threads(f, 3, timeout=FOREVER)[0] == [1, 1, 1]


def test_ranks_may_return_at_different_times():
    def f(comm):
        total = distributed.all_reduce(comm.rank, comm)
        time.sleep(0.01 * comm.rank)
        return int(total)

    for _ in range(5):
        assert distributed.run_in_threads(f, 4, timeout=FOREVER) == [6] * 4


def test_a_part_of_the_ranks_does_not_wait_either():
    def f(comm):
        pair = comm.split(comm.rank // 2)
        if comm.rank != 2:
            distributed.barrier(pair)

    with pytest.raises(distributed.RankFailedError, match=r"rank 0 returned .* rank 1 waited"):
        distributed.run_in_threads(f, 4, timeout=FOREVER)


@pytest.mark.parametrize("double", [False, True])
def test_gradients_that_are_averaged_in_the_background_do_not_wait_either(double):
    def f(comm):
        average = distributed.average_gradients(comm, double_buffering=double)
        optimizer = optim.chain(average, optim.sgd(0.1))
        params = np.ones(4)
        state = optimizer.init(params)
        for _ in range(2 + 3 * (comm.rank == 0)):
            updates, state = optimizer.update(params, state, params)
            params = optim.apply_updates(params, updates)
        return params

    with pytest.raises(distributed.RankFailedError, match="rank 1 returned"):
        distributed.run_in_threads(f, 2, timeout=FOREVER)
