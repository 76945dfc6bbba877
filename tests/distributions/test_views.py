"""What distributions say of their parameters agrees with what they compute."""

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.distributions import Categorical, OneHotCategorical


@pytest.mark.parametrize("kind", [Categorical, OneHotCategorical])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(3,), (2, 4), (1,)])
def test_probabilities_are_those_of_the_density(kind, dtype, shape):
    weights = np.random.default_rng(0).uniform(0.1, 3.0, shape).astype(dtype)
    found = kind(weights)
    assert found.probs.dtype == weights.dtype
    assert np.allclose(found.probs, weights / weights.sum(-1, keepdims=True))
    assert np.allclose(found.probs, found.p)
    numbers = np.arange(shape[-1]).reshape(-1, *(1,) * (len(shape) - 1))
    x = np.eye(shape[-1])[numbers] if kind is OneHotCategorical else numbers
    density = np.moveaxis(np.exp(found.log_prob(x)), 0, -1)
    assert np.allclose(density, found.probs, rtol=1e-5)
    again = kind(found.probs)
    assert np.allclose(again.probs, found.probs, rtol=1e-6)


def test_gradients_pass_through_the_normalization():
    def loss(w):
        return Categorical(w).probs[0]

    w = np.array([1.0, 2.0, 3.0])
    assert np.allclose(fdbr.grad(loss)(w), fdbr.grad(lambda w: w[0] / ops.sum(w))(w))
    assert np.allclose(fdbr.jit(loss)(w), 1 / 6)
