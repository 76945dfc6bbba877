"""Variances, squared errors and cross entropies of large arrays: one pass in place of several."""

import math

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from sharing import shared
from sizes import use_kernels_from

import fdbr
from fdbr import ops
from fdbr.backends.cpu.tuning import TUNING
from fdbr.testing import check_grads

PROGRAMS = {
    "mean_squared_error": lambda x, y: ops.mean_squared_error(x, y),
    "var": lambda x, y: ops.var(x * y, axis=0, correction=1),
    "std": lambda x, y: ops.std(x, axis=-1, keepdims=True) * y,
    "var/all": lambda x, y: ops.var(x) * ops.var(y),
    "max": lambda x, y: ops.max(x, axis=0) * ops.min(y, axis=-1)[:1],
    "prod": lambda x, y: ops.prod(x, axis=0) + ops.prod(y),
    "probabilities": lambda x, y: ops.softmax_cross_entropy(x, y, reduction="none"),
    "vecdot": lambda x, y: ops.vecdot(x, y) + ops.inner(x[0], y[0]),
    "scaled": lambda x, y: ops.layer_norm(x, y[0], y[1]),
    "repeated": lambda x, y: (x * y[0] + x[:, :1] * y) / (2 + y[:1] * y[:1]),
}


@pytest.fixture(params=[True, False], ids=["large", "small"])
def large(request, monkeypatch):
    """Arrays of any size are large, or none is."""
    use_kernels_from(0 if request.param else math.inf, monkeypatch)
    monkeypatch.setattr(TUNING, "reduced_row", 2)
    monkeypatch.setattr(TUNING, "reduced_columns", 2)
    return request.param


@pytest.mark.parametrize("name", shared(list(PROGRAMS)))
def test_derivatives_of_all_orders_are_right(name, large):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 1.5, (2, 3, 4))
    check_grads(PROGRAMS[name], x, y, order=2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_batch_is_its_examples(name, large):
    x, y = np.random.default_rng(0).uniform(0.5, 1.5, (2, 5, 3, 4))
    f = lambda x, y: fdbr.grad(lambda x, y: ops.sum(PROGRAMS[name](x, y)), argnums=(0, 1))(x, y)
    rows = [f(*pair) for pair in zip(x, y, strict=True)]
    desired = [np.stack(parts) for parts in zip(*rows, strict=True)]
    for one, other in zip(fdbr.vmap(f)(x, y), desired, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
    one = fdbr.vmap(lambda y: f(x[0], y))(y)[0]
    np.testing.assert_allclose(one[2], f(x[0], y[2])[0], rtol=1e-12)


@given(hnp.arrays("float32", (40, 33), elements=st.floats(-1e4, 1e4, width=32)), st.integers(0, 32))
@settings(max_examples=25)
def test_a_loss_without_its_derivative_is_the_same(x, label):
    labels = np.full(40, label)
    f = lambda x: ops.softmax_cross_entropy(x, labels, reduction="none")
    wide = np.concatenate([x, x - 3], axis=1)  # classes enough for the other way
    for logits in (x, wide):
        np.testing.assert_allclose(f(logits), fdbr.vjp(f, logits)[0], rtol=1e-6, atol=1e-6)
