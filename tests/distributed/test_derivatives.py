"""Derivatives through collectives: the objective is the sum of all ranks' losses."""

import numpy as np
from alone import DIVIDING, NAMES, apart, together
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import ops
from fdbr.distributed.packing import dtype_named

FEW = settings(max_examples=25, deadline=None)


@st.composite
def cases(draw, names=NAMES):
    name = draw(st.sampled_from(names))
    size = draw(st.integers(1, 4))
    shape = draw(st.sampled_from([(), (3,), (2, 0), (2, 3)]))
    if name in DIVIDING:
        shape = (size * draw(st.integers(1, 2)), *shape)
    seed = draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    xs = [np.asarray(rng.normal(size=shape)) for _ in range(size)]
    if name in ("max", "min", "reduce_max") and draw(st.booleans()):
        xs = [np.round(x) for x in xs]  # there are ties
    return name, draw(st.integers(0, size - 1)), xs


def loss_of(rank, y):
    """A loss that differs between ranks; 0 where there is nothing to lose."""
    return 0.0 if y is None else ops.sum(ops.sin(y + rank) * (rank + 1.0))


def losses(name, root, xs, inner=ops.tanh):
    ys = together(name, [inner(x) for x in xs], root)
    return [loss_of(rank, y) for rank, y in enumerate(ys)]


def total(name, root, xs):
    return sum(losses(name, root, xs))


def loss(name, root, comm):
    return lambda x: loss_of(comm.rank, apart(name, ops.tanh(x), comm, root))


def on_ranks(f, xs):
    """The results of all ranks, each of which is given its entry."""
    return d.run_in_threads(lambda comm: f(comm, xs[comm.rank]), len(xs), timeout=20)


def agree(found, expected, tolerance=1e-10):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@FEW
@given(cases())
def test_gradients_agree_with_those_of_one_process(case):
    name, root, xs = case
    found = on_ranks(lambda comm, x: fdbr.grad(loss(name, root, comm))(x), xs)
    agree(found, fdbr.grad(lambda xs: total(name, root, xs))(xs))


@FEW
@given(cases(tuple(name for name in NAMES if name not in ("max", "min", "reduce_max"))))
def test_gradients_agree_with_numerical_differentiation_across_ranks(case):
    name, root, xs = case
    vs = [np.cos(np.arange(x.size)).reshape(x.shape) for x in xs]

    def value(step):
        moved = [x + step * v for x, v in zip(xs, vs, strict=True)]
        return sum(map(float, on_ranks(lambda comm, x: loss(name, root, comm)(x), moved)))

    derivatives = on_ranks(lambda comm, x: fdbr.grad(loss(name, root, comm))(x), xs)
    slope = sum(float(np.sum(g * v)) for g, v in zip(derivatives, vs, strict=True))
    assert abs((value(1e-5) - value(-1e-5)) / 2e-5 - slope) < 1e-6 * (1 + abs(slope))


@FEW
@given(cases())
def test_second_derivatives_agree_with_those_of_one_process(case):
    name, root, xs = case

    def slope(f):
        return lambda x: ops.sum(ops.sin(fdbr.grad(f)(x)) * 2)

    def both(comm, x):
        f = loss(name, root, comm)
        return fdbr.grad(slope(f))(x), fdbr.hvp(f, (x,), (ops.cos(x),))

    found = on_ranks(both, xs)

    def twice(xs):
        derivatives = fdbr.grad(lambda xs: total(name, root, xs))(xs)
        return sum(ops.sum(ops.sin(g) * 2) for g in derivatives)

    agree([one for one, _ in found], fdbr.grad(twice)(xs))
    along = fdbr.hvp(lambda xs: total(name, root, xs), (xs,), ([ops.cos(x) for x in xs],))
    agree([other for _, other in found], along)


@FEW
@given(cases())
def test_tangents_agree_with_those_of_one_process(case):
    name, root, xs = case

    def push(comm, x):
        return fdbr.jvp(loss(name, root, comm), (x,), (ops.cos(x),))

    found = on_ranks(push, xs)
    out, slope = fdbr.jvp(lambda xs: losses(name, root, xs), (xs,), ([ops.cos(x) for x in xs],))
    agree([one for one, _ in found], out)
    agree([other for _, other in found], [0.0 if s is None else s for s in slope])


@FEW
@given(cases())
def test_batches_agree_with_those_of_one_process(case):
    name, root, xs = case
    batches = [np.stack([x, 2 * x, x - 1]) for x in xs]

    def derivatives(comm, batch):
        return fdbr.vmap(fdbr.grad(loss(name, root, comm)))(batch)

    agree(
        on_ranks(derivatives, batches),
        fdbr.vmap(fdbr.grad(lambda xs: total(name, root, xs)))(batches),
    )
    if xs[0].ndim == 1:  # a pullback, or what pushes tangents, for a batch
        f = lambda comm: lambda x: ops.tanh(apart("sum", x * x, comm))
        back = on_ranks(lambda comm, x: fdbr.jacrev(f(comm))(x), xs)
        front = on_ranks(lambda comm, x: fdbr.jacfwd(f(comm))(x), xs)
        whole = fdbr.jacfwd(lambda xs: sum(ops.tanh(sum(x * x for x in xs)) for _ in xs))(xs)
        agree(back, whole)
        assert all(one.shape == other.shape for one, other in zip(front, back, strict=True))


@FEW
@given(cases())
def test_what_is_checkpointed_has_the_same_derivatives(case):
    name, root, xs = case

    def derivatives(comm, x):
        cut = fdbr.checkpoint(lambda x: loss(name, root, comm)(x))
        nested = fdbr.checkpoint(lambda x: cut(x) + ops.sum(d.all_reduce(x, comm) ** 2))
        return fdbr.grad(nested)(x), fdbr.grad(lambda x: ops.sum(fdbr.grad(cut)(x) ** 2))(x)

    def whole(xs):
        return total(name, root, xs) + sum(ops.sum(sum(xs) ** 2) for _ in xs)

    found = on_ranks(derivatives, xs)
    agree([one for one, _ in found], fdbr.grad(whole)(xs))

    def squares(xs):
        return sum(ops.sum(g**2) for g in fdbr.grad(lambda xs: total(name, root, xs))(xs))

    agree([other for _, other in found], fdbr.grad(squares)(xs))


@FEW
@given(cases(names=("max", "min", "reduce_max")), st.sampled_from(["float16", "bfloat16"]))
def test_extreme_values_that_were_rounded_on_their_way_have_derivatives(case, wire):
    name, root, xs = case
    op = name.removeprefix("reduce_")
    reduced = d.all_reduce if name == op else lambda *args, **how: d.reduce(*args, root, **how)
    weights = np.arange(1.0, 1.0 + len(xs))

    def derivatives(comm, x):
        def f(x):
            out = reduced(x, comm, op, wire=wire)
            return 0.0 if out is None else ops.sum(out) * weights[comm.rank]

        return fdbr.grad(f)(x)

    rounded = np.stack([x.astype(dtype_named(wire)).astype(np.float64) for x in xs])
    has = rounded == getattr(rounded, op)(axis=0)
    whole = weights.sum() if name == op else weights[root]
    agree(on_ranks(derivatives, xs), list(whole * has / has.sum(axis=0)), 1e-2)
