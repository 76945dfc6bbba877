"""Models whose normalisation is by the statistics of all ranks train as on one."""

import hypothesis.strategies as st
import numpy as np
from distributed.gradients.models import assert_close, assert_same_bits, examples, part, shares
from hypothesis import given, settings

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops
from fdbr.train import optim


def trained(comm, counts, how, jitted=False):
    """The model after some steps on the rank's shares of the batches."""
    k1, k2 = fdbr.random.split(fdbr.random.key(0))
    model = nn.Sequential(
        nn.Linear.init(k1, 3, 4, dtype=np.float64),
        nn.BatchNorm.init(None, 4, dtype=np.float64),
        ops.tanh,
        nn.Linear.init(k2, 4, 2, dtype=np.float64),
    )
    if comm.size > 1:
        model = d.sync_batch_norm(model, comm)
    optimizer = optim.adam(1e-2)
    scale = comm.size / sum(counts)

    def loss(model, x, y):
        out, model = model.train(x)
        return ops.sum((out - y) ** 2) * scale, model

    if how == "overlapped":
        gradient = d.value_and_grad(loss, comm, has_aux=True, bucket_bytes=64)
    else:
        gradient = fdbr.value_and_grad(loss, has_aux=True)
        optimizer = optim.chain(d.average_gradients(comm, bucket_bytes=64), optimizer)

    def step(model, state, x, y):
        (_, model), grads = gradient(model, x, y)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state

    step = fdbr.jit(step) if jitted else step
    state = optimizer.init(model)
    for number in range(3):
        x, y = part(examples((3, 2), sum(counts), number), counts, comm.rank)
        model, state = step(model, state, x, y)
    return fdbr.tree.leaves(model)


@given(shares(most=3), st.sampled_from(["after", "overlapped"]), st.booleans())
@settings(max_examples=10, deadline=None)
def test_batch_normalisation_over_ranks_trains_as_one_process_does(counts, how, jitted):
    counts = [*counts, 4]  # of one example there is no variance
    one = trained(d.serial(), [sum(counts)], how)
    ranks = d.run_in_threads(lambda comm: trained(comm, counts, how, jitted), len(counts))
    for leaves in ranks:
        assert_close(leaves, one)
        if not jitted:
            assert_same_bits(leaves, ranks[0])
