"""Components on different ranks compute what they do on one, and get the same gradients."""

import re

import numpy as np
import pytest

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, random, tree

A, B, C = (nn.Linear.init(k, 3, 3, dtype=np.float64) for k in random.split(random.key(0), 3))
X = np.asarray(random.normal(random.key(1), (4, 3), "float64"))


def add(a, b):
    return ops.sin(a) * b


def loss(model, x):
    y = model(x)
    return 0.0 if y is None else ops.sum(ops.sin(y) * y)


def close(found, wanted):
    for a, b in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def gradients(wiring, size):
    def f(comm):
        model = d.MultiNodeSequential.init(wiring[comm.rank], comm)
        value, grads = fdbr.value_and_grad(loss)(model, X)
        return model(X), value, grads.components

    return d.run_in_threads(f, size)


def test_a_chain_over_ranks():
    whole = nn.Sequential(A, ops.tanh, B, C)
    wanted = fdbr.grad(loss)(whole, X).layers
    found = gradients([[(nn.Sequential(A, ops.tanh), None, 1)], [(B, 0, 2)], [(C, 1, None)]], 3)
    assert [y is None for y, _, _ in found] == [True, True, False]
    np.testing.assert_allclose(found[2][0], whole(X), rtol=1e-12)
    close(found[0][2], wanted[:1])
    close(found[1][2], wanted[2:3])
    close(found[2][2], wanted[3:])


def test_a_loop_between_ranks_and_several_inputs_and_outputs():
    def whole(layers, x):
        a, b, c = layers
        first = a(x)
        return ops.sum(ops.sin(c(add(first, b(first)))) * c(add(first, b(first))))

    wanted = fdbr.grad(whole)((A, B, C), X)
    join = fdbr.nn.Lambda(lambda pair: pair)  # a plain layer before the one that takes two inputs
    found = gradients(
        [
            [(A, None, (0, 1)), (add, (0, 1), 1)],
            [(nn.Sequential(B, join), 0, 0), (C, 0, None)],
        ],
        2,
    )
    close(found[0][2][0], wanted[0])
    close(found[1][2], wanted[1:])


def test_derivatives_of_second_order():
    whole = nn.Sequential(A, ops.tanh, B)

    def twice(model, x):
        slope = fdbr.grad(loss, argnums=1)(model, x)
        return ops.sum(slope**2)

    wanted = fdbr.grad(twice)(whole, X).layers

    def f(comm):
        first = (nn.Sequential(A, ops.tanh), None, 1)
        model = d.MultiNodeSequential.init([first if comm.rank == 0 else (B, 0, None)], comm)
        return fdbr.grad(twice)(model, X).components

    found = d.run_in_threads(f, 2)
    close(found[0], wanted[:1])
    close(found[1], wanted[2:])


@pytest.mark.parametrize(
    ("wiring", "text"),
    [
        ([[(A, 1, 1)], [(B, 0, 0)]], "component 0 of rank 0 waits for rank 1; component 0 of rank"),
        (
            [[(A, None, 1)], [(B, None, None)]],
            "nobody takes these outputs: 1 from rank 0 to",
        ),
        ([[(A, None, 2)], [(B, 0, None)]], "names rank 2; there are ranks 0 to 1"),
        ([[(A, None, None), (B, None, None)], []], "rank 0 has several components without a rank"),
        ([[A], []], r"must be a tuple \(layer, from, to\)"),
    ],
)
def test_wirings_that_would_not_end_are_errors_on_all_ranks(wiring, text):
    caught = []

    def f(comm):
        try:
            d.MultiNodeSequential.init(wiring[comm.rank], comm)
        except (TypeError, ValueError) as error:
            caught.append(str(error))

    d.run_in_threads(f, 2)
    assert len(caught) == 2
    assert any(re.search(text, one) for one in caught)
