"""Layers are timed beside PyTorch's; how fast they are is not a matter for tests."""

import numpy as np
import pytest

import fdbr
from benchmarks.layers.rows import ROWS
from fdbr import nn


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_timed_layer_is_a_public_one(row):
    layer = row.ours(nn, fdbr.random.key(0))
    assert type(layer) is getattr(nn, row.name.split()[0].rstrip(","))
    x = row.input(np.random.default_rng(0), row.shape)
    assert x.shape == row.shape
