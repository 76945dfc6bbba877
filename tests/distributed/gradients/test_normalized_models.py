"""Models whose normalisation is by the statistics of all ranks train as on one."""

import hypothesis.strategies as st
import numpy as np
import pytest
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


def weighed(comm, counts, how, jitted, optimizer=None):
    """The gradient of the mean loss of all examples, for which each rank gives that of its own."""
    x = np.sin(np.arange(sum(counts) * 12.0)).reshape(-1, 3, 4)
    y = np.cos(np.arange(sum(counts)))
    layer = nn.BatchNorm.init(None, 3, dtype=np.float64)
    model = [np.linspace(0.5, 2.0, 12).reshape(3, 4), layer]
    if comm.size > 1:
        model[1] = d.sync_batch_norm(layer, comm)

    def loss(model, x, y):
        out, after = model[1].train(ops.tanh(x * model[0]))
        return ops.sum((ops.mean(out**3, axis=(1, 2)) - y) ** 2) / max(len(y), 1), after

    x, y = part((x, y), counts, comm.rank)
    if how == "value_and_grad":
        gradient = d.value_and_grad(loss, comm, has_aux=True, weight=lambda m, x, y: len(y))
        return (fdbr.jit(gradient) if jitted else gradient)(model, x, y)[1]
    update = d.average_gradients(comm, double_buffering=how == "buffered").update

    def averaged(model, x, y):
        scale = comm.size * len(y) / sum(counts) if how == "scaled" else 1.0
        grads, _ = fdbr.grad(lambda *a: (loss(*a)[0] * scale, None), has_aux=True)(model, x, y)
        weight = None if how == "scaled" else len(y)
        updates, _ = update(grads, d.average_gradients(comm).init(model), model, weight=weight)
        return updates

    return (fdbr.jit(averaged) if jitted else averaged)(model, x, y)


SHARES = [[6, 5], [4, 3, 3], [1, 0, 0], [3, 1], [0, 2, 5], [2, 2]]


@pytest.mark.parametrize("counts", SHARES, ids=str)
@pytest.mark.parametrize("how", ["value_and_grad", "scaled"])
@pytest.mark.parametrize("jitted", [False, True])
def test_unequal_shares_of_a_loss_with_collectives_have_the_gradient_of_all(counts, how, jitted):
    one = fdbr.tree.leaves(weighed(d.serial(), [sum(counts)], how, False))
    for grads in d.run_in_threads(lambda comm: weighed(comm, counts, how, jitted), len(counts)):
        for found, wanted in zip(fdbr.tree.leaves(grads), one, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("jitted", [False, True])
def test_weights_after_a_backward_pass_with_collectives_are_refused(jitted):
    def of(how, counts):
        return d.run_in_threads(lambda comm: weighed(comm, counts, how, jitted), len(counts))

    with pytest.raises(ValueError, match=r"average_gradients: .*weights .* differ.*value_and_grad"):
        of("after", [3, 1])
    equal = fdbr.tree.leaves(of("after", [2, 2])[0])
    one = fdbr.tree.leaves(weighed(d.serial(), [4], "after", False))
    for found, wanted in zip(equal, one, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_collectives_of_which_the_loss_is_no_function_do_not_hinder_weights():
    def step(comm):
        x = np.arange(1.0, 3.0 - comm.rank)

        def loss(w):
            value = ops.mean(w * x)
            return value, d.all_reduce(value, comm)

        grads, _ = fdbr.grad(loss, has_aux=True)(2.0)
        return d.average_gradients(comm).update(grads, (), weight=len(x))[0]

    assert d.run_in_threads(step, 2) == pytest.approx([4 / 3, 4 / 3])
