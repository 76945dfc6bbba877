"""A history holds what is differentiated, and nothing before it."""

import gc
import tracemalloc

import numpy as np

import fdbr
from fdbr import nn, ops, random


def kept(function, *args):
    """The bytes of the arrays that the pullback of a function holds."""
    pullback = fdbr.vjp(function, *args)[1]
    del pullback
    gc.collect()
    tracemalloc.start()
    _, pullback = fdbr.vjp(function, *args)
    gc.collect()
    # Only arrays count: kernels that are compiled meanwhile leave other objects.
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    held = tracemalloc.take_snapshot().filter_traces([arrays]).statistics("filename")
    tracemalloc.stop()
    del pullback
    return sum(line.size for line in held)


def test_a_fixed_extractor_under_a_trained_head_stores_no_history():
    keys = random.split(random.key(0), 4)
    layers = [layer for key in keys[:3] for layer in (nn.Linear.init(key, 200, 200), ops.tanh)]
    extractor = nn.Sequential(*layers)
    head = nn.Linear.init(keys[3], 200, 3)
    x, labels = np.ones((500, 200), np.float32), np.zeros(500, int)

    def loss(extractor, head):
        return ops.softmax_cross_entropy(head(extractor(x)), labels)

    features = x.nbytes  # which the head's gradient needs
    assert kept(lambda head: loss(extractor, head), head) < 1.2 * features
    assert kept(lambda head: loss(fdbr.stop_gradient(extractor), head), head) < 1.2 * features
    assert kept(loss, extractor, head) > 2.5 * features


def test_the_history_of_a_truncated_sequence_is_that_of_its_last_part():
    cell = nn.Linear.init(random.key(0), 300, 300)
    h0 = np.ones((100, 300), np.float32)

    def run(cell, steps, every):
        h = h0
        for i in range(steps):
            h = fdbr.stop_gradient(h) if i % every == 0 else h
            h = ops.tanh(cell(h))
        return h.sum()

    short = kept(lambda cell: run(cell, 4, 100), cell)
    assert kept(lambda cell: run(cell, 40, 100), cell) > 8 * short
    assert kept(lambda cell: run(cell, 44, 4), cell) < 1.5 * short
