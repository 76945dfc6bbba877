"""Models and data of which every rank has a share."""

import itertools

import numpy as np
from hypothesis import strategies as st

import fdbr
from fdbr import ops


def parameters(sizes, seed, dtype=np.float64):
    """A network of layers, a buffer and an empty place, as a tree of arrays."""
    rng = np.random.default_rng(seed)
    layers = [
        {
            "weight": (rng.normal(size=(m, n)) / np.sqrt(m)).astype(dtype),
            "bias": rng.normal(size=n).astype(dtype),
            "scale": dtype(1.5),
            "steps": 3,
            "nothing": None,
        }
        for m, n in itertools.pairwise(sizes)
    ]
    return {"layers": layers, "unused": np.ones(2, dtype)}


def loss(params, x, y):
    """The mean over examples; NaN of none."""
    for layer in params["layers"]:
        x = ops.tanh(ops.matmul(x, layer["weight"]) + layer["bias"]) * layer["scale"]
    return ops.sum((x - y) ** 2) / len(x) if len(x) else ops.sum(x) * np.nan


def examples(sizes, count, seed):
    """Inputs and what is to come of them."""
    rng = np.random.default_rng(seed + 1)
    return rng.normal(size=(count, sizes[0])), rng.normal(size=(count, sizes[-1]))


@st.composite
def shares(draw, most=4):
    """The numbers of examples of one to four ranks, some of which may have none, but not all."""
    size = draw(st.integers(1, most))
    counts = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    if not any(counts):
        counts[draw(st.integers(0, size - 1))] = 3
    return counts


def part(arrays, counts, rank):
    """The part of each array that is a rank's."""
    start = sum(counts[:rank])
    return [array[start : start + counts[rank]] for array in arrays]


def assert_close(a, b, tolerance=1e-6):
    """Two trees are equal, but for so much relative to the greatest number."""
    assert fdbr.tree.structure(a) == fdbr.tree.structure(b)
    for x, y in zip(fdbr.tree.leaves(a), fdbr.tree.leaves(b), strict=True):
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * (1 + np.max(np.abs(y))))


def assert_same_bits(a, b):
    """Two trees are equal."""
    for x, y in zip(fdbr.tree.leaves(a), fdbr.tree.leaves(b), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
