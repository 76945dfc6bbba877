"""Random programs of ranks that decide apart and run in different ways, against one process."""

import numpy as np
from alone import apart, together
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import ops

KEEPING = ("sum", "mean", "max", "broadcast", "ring", "all_to_all")


@st.composite
def programs(draw):
    size = draw(st.integers(1, 3))
    some = st.sets(st.integers(0, size - 1))
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["keep", "keep", "gather", "stop", "decide", "lost"]))
        name = draw(st.sampled_from(KEEPING))
        root, chosen = draw(st.integers(0, size - 1)), draw(some)
        steps.append((kind, name, root, chosen, draw(st.booleans())))
    return size, steps, draw(st.integers(0, 99)), draw(some)


def one(step, rank, v, collective):
    """A step of one rank; ``collective(name, v, root)`` is what it does with others."""
    kind, name, root, chosen, _ = step
    if kind == "keep":
        return collective(name, ops.tanh(v), root)
    if kind == "gather":
        whole = collective("gather", v * 0.5, root)
        return v if whole is None else v + ops.sum(whole, axis=0)
    if kind == "lost":  # some do not use what comes
        return v + collective(name, v, root) * (0.0 if rank in chosen else 1.0)
    if kind == "stop":
        return fdbr.stop_gradient(v) if rank in chosen else v
    return v * 2 if ops.sum(v) > rank else ops.sin(v)  # they decide apart


def value(steps, comm, users, x):
    v = x
    for step in steps:

        def iteration(v, step=step):
            return one(step, comm.rank, v, lambda name, v, root: apart(name, v, comm, root))

        v = (fdbr.checkpoint(iteration) if step[4] else iteration)(v)
    return ops.sum(v**2) if comm.rank in users else 0.0


def values(steps, users, xs):
    """The same of all ranks, step by step."""
    vs = list(xs)
    for step in steps:
        asked = {}
        for rank, v in enumerate(vs):
            one(step, rank, v, _asking(asked, rank))
        got = {}
        if asked:
            name, _, root = asked[0]
            got = dict(enumerate(together(name, [asked[r][1] for r in range(len(vs))], root)))
        vs = [one(step, rank, v, lambda *_, rank=rank: got[rank]) for rank, v in enumerate(vs)]  # noqa: B023
    return sum(ops.sum(v**2) if rank in users else 0.0 for rank, v in enumerate(vs))


def _asking(asked, rank):
    """Notes what a rank asks the others for."""

    def collective(name, v, root):
        asked[rank] = name, v, root
        return ops.zeros_like(v) if name != "gather" else None

    return collective


@settings(max_examples=20, deadline=None)
@given(programs(), st.lists(st.sampled_from("ejcv"), min_size=3, max_size=3))
def test_ranks_that_run_in_different_ways_go_together(program, ways):
    size, steps, seed, users = program
    rng = np.random.default_rng(seed)
    xs = [rng.normal(size=2 * size) for _ in range(size)]

    def f(comm):
        slope = fdbr.grad(lambda x: value(steps, comm, users, x))
        x, way = xs[comm.rank], ways[comm.rank]
        if way == "j":
            slope = fdbr.jit(slope)
        elif way == "c":
            slope = fdbr.jit(slope).compile(x)
        elif way == "v":
            slope = lambda x, slope=slope: fdbr.vjp(slope, x)[0]
        return [slope(y) for y in (x, x, -x, x)]

    if "v" in ways[:size]:  # it takes two derivatives, as all must
        ways[:] = ["v"] * 3
    found = d.run_in_threads(f, size, timeout=20)
    back = [-x for x in xs]
    for i, given_ in enumerate((xs, xs, back, xs)):
        expected = fdbr.grad(lambda xs: values(steps, users, xs) + 0.0 * ops.sum(xs[0]))(given_)
        for rank in range(size):
            np.testing.assert_allclose(found[rank][i], expected[rank], rtol=1e-9, atol=1e-9)
