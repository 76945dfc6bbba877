"""Training on many ranks gives what one process gives with the same global batches."""

import warnings

import hypothesis.strategies as st
import pytest
from distributed.gradients.models import (
    assert_close,
    assert_same_bits,
    examples,
    loss,
    parameters,
    part,
    shares,
)
from hypothesis import given, settings

import fdbr
from fdbr import distributed as d
from fdbr.train import optim

OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1),
    "momentum": lambda: optim.sgd(0.1, momentum=0.9),
    "adam": lambda: optim.adam(1e-2),
}


@pytest.fixture(autouse=True)
def _empty_shares_are_nan():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def trained(comm, sizes, counts, steps, name, *, seed=0, how="after", jitted=False, every=1):
    """The parameters after some steps on the rank's shares."""
    optimizer = OPTIMIZERS[name]()
    if every > 1:
        optimizer = optim.MultiSteps(optimizer, every).gradient_transformation()
    if how == "overlapped":
        gradient = d.value_and_grad(
            loss, comm, weight=lambda params, x, y: len(x), bucket_bytes=128
        )
    else:
        gradient = fdbr.value_and_grad(loss)
        optimizer = optim.chain(d.average_gradients(comm, bucket_bytes=128), optimizer)

    def step(params, state, x, y):
        _, grads = gradient(params, x, y)
        updates, state = optimizer.update(grads, state, params, weight=len(x))
        return optim.apply_updates(params, updates), state

    step = fdbr.jit(step) if jitted else step
    params = parameters(sizes, seed)
    state = optimizer.init(params)
    for number in range(steps):
        x, y = part(examples(sizes, sum(counts), seed + number), counts, comm.rank)
        params, state = step(params, state, x, y)
    return params


LAYERS = st.lists(st.integers(1, 5), min_size=2, max_size=4)
HOW = st.sampled_from(["after", "overlapped"])


@given(LAYERS, shares(), st.sampled_from(sorted(OPTIMIZERS)), HOW, st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_ranks_with_shares_of_any_sizes_train_as_one_does(sizes, counts, name, how, seed):
    one = trained(d.serial(), sizes, [sum(counts)], 4, name, seed=seed)
    ranks = [
        d.run_in_threads(
            lambda comm: trained(comm, sizes, counts, 4, name, seed=seed, how=how), len(counts)
        )
        for _ in range(2)
    ]
    for params in ranks[0]:
        assert_close(params, one)
        assert_same_bits(params, ranks[0][0])
    assert_same_bits(ranks[1], ranks[0])


@given(LAYERS, shares(), st.sampled_from(sorted(OPTIMIZERS)), HOW)
@settings(max_examples=6, deadline=None)
def test_a_jitted_step_trains_as_one_process_does(sizes, counts, name, how):
    one = trained(d.serial(), sizes, [sum(counts)], 6, name)
    ranks = d.run_in_threads(
        lambda comm: trained(comm, sizes, counts, 6, name, how=how, jitted=True), len(counts)
    )
    for params in ranks:
        assert_close(params, one)


@pytest.mark.parametrize("jitted", [False, True])
@given(LAYERS, shares(), HOW, st.integers(2, 3))
@settings(max_examples=6, deadline=None)
def test_gradients_are_accumulated_over_steps_and_ranks(jitted, sizes, counts, how, every):
    steps = 3 * every  # jitted, the last ones are a program's
    one = trained(d.serial(), sizes, [sum(counts)], steps, "adam", every=every)
    ranks = d.run_in_threads(
        lambda comm: trained(
            comm, sizes, counts, steps, "adam", how=how, jitted=jitted, every=every
        ),
        len(counts),
    )
    for params in ranks:
        assert_close(params, one)
