"""Loops over random trees, and the loops of Python that they must equal."""

import numpy as np
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree

SHAPES = [(), (2,), (3, 2), (1, 0)]


def by_hand(f, init, xs, length, reverse=False):
    """What `scan` must give, for at least one turn."""
    carry, ys = init, []
    order = range(length)
    for i in reversed(order) if reverse else order:
        carry, y = f(carry, tree.map(lambda leaf: leaf[i], xs))  # noqa: B023
        ys.append(y)
    ys = ys[::-1] if reverse else ys
    return carry, tree.map(lambda *leaves: ops.stack(leaves), *ys)


@st.composite
def loops(draw, least=0):
    """``(f, w, init, xs, length)``, where ``f(w)`` is what a scan calls."""
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    shapes = lambda most: draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=most))
    length = draw(st.integers(least, 5))
    dtype = draw(st.sampled_from([np.float64, np.float64, np.float32]))
    make = lambda shape: (rng.normal(size=shape) / 2).astype(dtype)
    nest = draw(st.sampled_from([tuple, list, lambda leaves: {"a": leaves[0], "b": leaves[1:]}]))
    init = nest([make(shape) for shape in shapes(3)])
    init = (init, make((2,)), np.int64(rng.integers(5)))
    xs = nest([make((length, *shape)) for shape in shapes(2)])
    w = {"w": make((2,)), "b": make(())}

    def with_weights(w):
        def f(carry, x):
            free, h, count = carry
            drive = sum(ops.sum(leaf) for leaf in tree.leaves(x))
            h = np.tanh(w["w"] * h + drive + w["b"] * ops.flip(h))
            free = tree.map(lambda leaf: np.sin(leaf) * h[0] + w["b"] * leaf, free)
            y = {"h": h * drive, "n": count, "x": tree.map(lambda leaf: leaf * h[1], x)}
            return (free, h, count + 1), y

        return f

    return with_weights, w, init, xs, length


def total(out):
    """A scalar of everything floating in a result."""
    weigh = lambda leaf: ops.sum(np.cos(leaf) * leaf) if tree.is_inexact(leaf) else 0.0
    return sum(weigh(leaf) for leaf in tree.leaves(out))


TRANSFORMED = {
    "value": lambda g: g,
    "vjp": lambda g: fdbr.grad(lambda *args: total(g(*args)), (0, 1, 2)),
    "vjp by constants around": lambda g: fdbr.grad(lambda *args: total(g(*args))),
    "jvp": lambda g: lambda *args: fdbr.jvp(g, args, tuple(tree.map(_direction, a) for a in args)),
    "second order": lambda g: (
        lambda *args: fdbr.grad(
            lambda w: total(fdbr.grad(lambda w, *rest: total(g(w, *rest)), 1)(w, *args[1:]))
        )(args[0])
    ),
    "jvp of the gradient": lambda g: (
        lambda *args: fdbr.jvp(
            lambda w: fdbr.grad(lambda w: total(g(w, *args[1:])))(w),
            (args[0],),
            (tree.map(_direction, args[0]),),
        )
    ),
    "vmap": lambda g: lambda *args: fdbr.vmap(g)(*_batched(args)),
    "vmap over weights": lambda g: (
        lambda *args: fdbr.vmap(g, (0, None, None))(_batched(args[0]), *args[1:])
    ),
    "vmap of the gradient": lambda g: (
        lambda *args: fdbr.vmap(fdbr.grad(lambda *args: total(g(*args)), (0, 1, 2)))(
            *_batched(args)
        )
    ),
    "gradient of a vmap": lambda g: (
        lambda *args: fdbr.grad(
            lambda w: total(fdbr.vmap(g, (None, 0, 0))(w, *_batched(args[1:])))
        )(args[0])
    ),
}


def _direction(leaf):
    return leaf * 0 + leaf.dtype.type(0.5) if tree.is_inexact(leaf) else None


def _batched(args):
    def more(leaf):
        third = leaf + 3 if leaf.dtype.kind == "i" else leaf / 2
        return ops.stack([leaf, leaf * 2 - 1, third])

    return tree.map(more, args)


def counted(lower, upper, checkpoint):
    """A loop of Python over integers, the same by `fori_loop`, and arguments for both."""

    def loop(w, init, xs):
        for i in range(lower, upper):
            init = np.sin(init * w + i * xs[i])
        return init

    def fori(w, init, xs):
        body = lambda i, val: np.sin(val * w + i * xs[i])
        return fdbr.fori_loop(lower, upper, body, init, checkpoint=checkpoint)

    return loop, fori, (np.array([0.3, 0.5]), np.array([1.0, -1.0]), np.arange(10.0).reshape(5, 2))
