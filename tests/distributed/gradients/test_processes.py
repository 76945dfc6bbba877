"""Data parallelism on ranks that are processes."""

import json

import pytest
from distributed.launching import mpiexec

PROGRAM = """
import json
import numpy as np
import fdbr
from distributed.gradients.models import examples, loss, parameters, part
from fdbr import distributed, tree
from fdbr.train import optim

comm = distributed.world()
sizes, counts = [4, 7, 3], [5, 0, 2]

def trained(how):
    buffered = how == "double buffering"
    average = distributed.average_gradients(comm, bucket_bytes=256, double_buffering=buffered)
    optimizer = optim.chain(average, optim.adam(1e-2))
    gradient = fdbr.value_and_grad(loss)
    if how in ("overlapped", "jitted"):
        optimizer = optim.adam(1e-2)
        gradient = distributed.value_and_grad(
            loss, comm, weight=lambda params, x, y: len(x), bucket_bytes=256
        )

    def step(params, state, x, y):
        _, grads = gradient(params, x, y)
        updates, state = optimizer.update(grads, state, params, weight=len(x))
        return optim.apply_updates(params, updates), state

    step = fdbr.jit(step) if how == "jitted" else step
    params = parameters(sizes, 0)
    state = optimizer.init(params)
    for number in range(5):
        x, y = part(examples(sizes, sum(counts), number), counts, comm.rank)
        params, state = step(params, state, x, y)
    tree.leaves(state)  # which waits for what is on its way
    return np.concatenate([np.ravel(leaf) for leaf in tree.leaves(params)]).tolist()

ways = ("after", "overlapped", "double buffering", "jitted")
ranks = distributed.all_gather_object({how: trained(how) for how in ways}, comm)
if comm.rank == 0:
    print(json.dumps(ranks))
"""


@pytest.mark.slow
def test_processes_train_alike_and_with_the_same_bits_in_each_run():
    ranks = []
    for _ in range(2):
        done = mpiexec(3, PROGRAM, timeout=60)
        assert done.returncode == 0, done.stderr
        ranks += json.loads(done.stdout.splitlines()[-1])
    first, *others = ranks
    assert len(others) == 5
    assert all(rank == first for rank in others)
    for how in ("overlapped", "jitted"):
        assert first[how] == pytest.approx(first["after"], rel=1e-9)
    assert first["double buffering"] != first["after"]
