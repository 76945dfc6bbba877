"""Paths through states, beside the sum of all of them one by one, and their derivatives."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.ops.nn.losses.alignments import LOG_ZERO, log_probabilities_of_states, path_recurrence
from fdbr.testing import check_grads

RNG = np.random.default_rng(0)
FRAMES, STATES = 4, 3


def _operands(dtype):
    x = RNG.normal(size=(2, FRAMES, STATES)).astype(dtype)
    penalty = np.array([[[0, 0, 0]], [[0, 0, LOG_ZERO]]], dtype)
    inside = np.arange(FRAMES)[:, None] < np.array([4, 3])[:, None, None]
    return x, penalty, inside


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_are_the_sums_over_all_paths(dtype):
    x, penalty, inside = _operands(dtype)
    desired = np.zeros((2, STATES))
    for example, frames in enumerate((4, 3)):
        for path in itertools.product(range(STATES), repeat=frames):
            steps = np.diff(path)
            skips = sum(
                penalty[example, 0, s] for s, k in zip(path[1:], steps, strict=True) if k == 2
            )
            if (steps >= 0).all():
                total = sum(x[example, t, s] for t, s in enumerate(path))
                desired[example, path[-1]] += np.exp(float(total + skips))
    found = log_probabilities_of_states(x, penalty, inside)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.exp(found[:, -1]), desired, rtol=1e-5)


def test_derivatives_are_right_at_every_order():
    x, penalty, inside = _operands("float64")
    check_grads(lambda x: log_probabilities_of_states(x, penalty, inside), x, order=2)
    shares = [RNG.uniform(size=x.shape) for _ in range(3)]
    check_grads(path_recurrence, x, *shares, order=2)


def test_tangents_of_states_that_no_path_reaches_stay_finite():
    x = np.full((1, 300, 5), LOG_ZERO, "float32")
    penalty, inside = np.zeros((1, 1, 5), "float32"), np.ones((1, 300, 1), bool)
    _, tangent = fdbr.jvp(
        lambda x: ops.sum(log_probabilities_of_states(x, penalty, inside)), (x,), (x * 0 + 1,)
    )
    assert np.isfinite(tangent)


def test_examples_may_share_operands_of_a_batch():
    x, penalty, inside = _operands("float64")
    found = fdbr.vmap(lambda p: log_probabilities_of_states(x[0], p, inside[0]))(penalty)
    for one, own in zip(found, penalty, strict=True):
        np.testing.assert_array_equal(one, log_probabilities_of_states(x[0], own, inside[0]))
