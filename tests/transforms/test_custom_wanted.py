"""Rules of custom_vjp and custom_jvp that are told what is asked of them."""

import itertools

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

A, B = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, -1.0], [2.0, 1.5]])


def watched():
    """A product of matrices in a tree, and what its rules were asked for."""
    asked = []

    @fdbr.custom_vjp
    def product(pair, c):
        return pair["a"] @ pair["b"] * c

    def fwd(pair, c, *, wanted):
        asked.append(("fwd", wanted))
        (tree, third) = wanted
        kept = pair["b"] if tree["a"] else None, pair["a"] if tree["b"] else None
        return product(pair, c), (*kept, pair["a"] @ pair["b"] if third else None, c)

    def bwd(kept, ct, *, wanted):
        asked.append(("bwd", wanted))
        b, a, value, c = kept
        (tree, third) = wanted
        return (
            {
                "a": c * ct @ b.mT if tree["a"] else None,
                "b": c * a.mT @ ct if tree["b"] else None,
                "n": None,
            },
            ops.sum(ct * value) if third else None,
        )

    return product.defvjp(fwd, bwd), asked


def call(product, a, b, c):
    return ops.sum(product({"a": a, "b": b, "n": 3}, c) ** 2)


def truth(a, b, c):
    return ops.sum((a @ b * c) ** 2)


CHOICES = [some for n in (1, 2, 3) for some in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("argnums", CHOICES)
def test_a_rule_is_asked_for_what_is_differentiated_and_for_nothing_else(argnums):
    product, asked = watched()
    found = fdbr.grad(lambda *args: call(product, *args), argnums)(A, B, 2.0)
    for one, other in zip(found, fdbr.grad(truth, argnums)(A, B, 2.0), strict=True):
        assert_allclose(one, other)
    wanted = ({"a": 0 in argnums, "b": 1 in argnums, "n": False}, 2 in argnums)
    assert asked == [("fwd", wanted), ("bwd", wanted)]


@pytest.mark.parametrize("argnums", CHOICES)
def test_it_is_right_under_every_transformation(argnums):
    product, asked = watched()
    f = lambda *args: call(product, *args)
    tangents = [x if i in argnums else None for i, x in enumerate((A, B, 2.0))]
    for one, other in zip(
        fdbr.jvp(f, (A, B, 2.0), tangents), fdbr.jvp(truth, (A, B, 2.0), tangents), strict=True
    ):
        assert_allclose(one, other)
    assert {n for _, (pair, c) in asked for n in (pair["a"], pair["b"], c)} <= {True, False}
    batch = np.stack([A, B]), np.stack([B, A]), np.array([2.0, 3.0])
    for wrap in (fdbr.vmap, lambda g: fdbr.jit(fdbr.vmap(g))):
        for one, other in zip(
            wrap(fdbr.grad(f, argnums))(*batch),
            fdbr.vmap(fdbr.grad(truth, argnums))(*batch),
            strict=True,
        ):
            assert_allclose(one, other)
    whole = fdbr.grad(lambda *args: ops.sum(fdbr.vmap(f)(*args)), argnums)(*batch)
    expected = fdbr.grad(lambda *args: ops.sum(fdbr.vmap(truth)(*args)), argnums)(*batch)
    for one, other in zip(whole, expected, strict=True):
        assert_allclose(one, other)
    second = fdbr.grad(lambda a: ops.sum(fdbr.grad(f, argnums)(a, B, 2.0)[0] ** 2))(A)
    assert_allclose(
        second, fdbr.grad(lambda a: ops.sum(fdbr.grad(truth, argnums)(a, B, 2.0)[0] ** 2))(A)
    )


def test_a_rule_without_the_keyword_is_called_as_ever():
    plain = fdbr.custom_vjp(
        lambda a, wanted: a * wanted,
        fwd=lambda a, wanted: (a * wanted, (a, wanted)),
        bwd=lambda kept, wanted: (kept[1] * wanted, kept[0] * wanted),
    )
    assert fdbr.grad(plain)(2.0, 3.0) == 3.0


def test_a_forward_rule_may_know_which_arguments_move():
    asked = []

    @fdbr.custom_jvp
    def product(a, b):
        return a * b

    @product.defjvp
    def rule(primals, tangents, *, moving):
        asked.append(moving)
        (a, b), (s, t) = primals, tangents
        terms = [x for x, moves in ((s * b, moving[0]), (a * t, moving[1])) if moves]
        return a * b, sum(terms)

    assert fdbr.jvp(product, (2.0, 3.0), (1.0, None)) == (6.0, 3.0)
    assert fdbr.grad(product, argnums=1)(2.0, 3.0) == 2.0
    assert fdbr.vmap(fdbr.grad(product))(np.ones(2), np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert fdbr.hessian(lambda x: product(x[0], x[1]))(np.array([2.0, 3.0])).tolist() == [
        [0, 1],
        [1, 0],
    ]
    assert set(asked) >= {(True, False), (False, True), (True, True)}
