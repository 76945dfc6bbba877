"""A batch without examples has results without examples, whatever the operation."""

import numpy as np
import pytest
import scipy.sparse

import fdbr
from fdbr import ops

X, W, K = np.ones((3, 4)), np.ones((3, 4)), np.ones((2, 2, 2))
PLACES = np.array([0, 2, 1])
S = scipy.sparse.csr_array(np.eye(3))
IMAGES = np.ones((1, 2, 5))

FUNCTIONS = {
    "linear": (lambda x, w, b: ops.linear(x, w, b), X, W, np.ones(3)),
    "argmax": (lambda x: ops.argmax(x) + np.argmin(x, axis=0), X),
    "searchsorted": (lambda x, y: np.searchsorted(x, y), np.arange(4.0), X),
    "interp": (lambda x, p, v: np.interp(x, p, v), X, np.arange(3.0), np.ones(3)),
    "histogram": (lambda x: np.histogram(x, 4)[0], X),
    "repeat": (lambda x, n: np.repeat(x, n, axis=0)[:1], X, np.zeros(3, int)),
    "segment_sum": (lambda x: ops.segment_sum(x, PLACES, 4), X),
    "embed": (lambda w, i: ops.embed(w, i), X, PLACES),
    "cross entropy": (lambda x, y: ops.softmax_cross_entropy(x, y), X, PLACES),
    "sparse": (lambda x: S @ x, X),
    "tensorinv": (lambda x: np.linalg.tensorinv(x, 1), np.eye(3)),
    "conv": (lambda x, w: ops.conv(x, w, padding=1), IMAGES, K),
    "conv with a bias": (lambda x, w, b: ops.conv(x, w, b), IMAGES, K, np.ones(2)),
    "conv_transpose": (lambda x, w: ops.conv_transpose(x, w), IMAGES, K),
    "solve": (np.linalg.solve, np.eye(3), X),
    "scan": (lambda x: fdbr.scan(lambda c, row: (c + row, c * row), x[0], x)[1], X),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_without_examples_gives_none(name):
    f, *args = FUNCTIONS[name]
    floating = tuple(i for i, x in enumerate(args) if x.dtype.kind == "f")
    total = lambda *args: ops.sum(ops.asarray(f(*args)) * 1.0)
    for batched in {(i,) for i in range(len(args))} | {tuple(range(len(args)))}:
        axes = tuple(0 if i in batched else None for i in range(len(args)))
        none = [x[None][:0] if i in batched else x for i, x in enumerate(args)]
        out = fdbr.vmap(f, axes)(*none)
        assert out.shape == (0, *np.shape(f(*args)))
        if out.dtype.kind != "f":
            continue
        derivatives = fdbr.vmap(fdbr.grad(total, argnums=floating), axes)(*none)
        assert [s.shape for s in derivatives] == [(0, *args[i].shape) for i in floating]
        mapped = fdbr.vmap(f, axes)
        derivatives = fdbr.grad(lambda *a, g=mapped: ops.sum(g(*a)), argnums=floating)(*none)
        assert all(
            np.array_equal(s, np.zeros_like(none[i]))
            for s, i in zip(derivatives, floating, strict=True)
        )


def test_sums_of_segments_of_rows_without_columns_have_none():
    assert ops.segment_sum(np.zeros((3, 0)), PLACES, 4).shape == (4, 0)
    slope = fdbr.grad(lambda w: np.sum(ops.embed(w, PLACES)) + np.sum(ops.embed(w, PLACES)))
    assert slope(np.zeros((3, 0))).shape == (3, 0)
