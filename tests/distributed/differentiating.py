"""A program of ranks that are processes: derivatives through collectives, eager and jitted."""

import numpy as np
from alone import DIVIDING, NAMES, apart, together

import fdbr
from fdbr import distributed, ops

comm = distributed.world(timeout=30)
rng = np.random.default_rng(3)


def loss_of(rank, y):
    return 0.0 if y is None else ops.sum(ops.sin(y + rank) * (rank + 1.0))


for name in NAMES:
    for shape in [(2, 3), ()] if name in ("sum", "gather") else [(3,)]:
        shape = (2 * comm.size, *shape) if name in DIVIDING else shape
        xs = [np.asarray(rng.normal(size=shape)) for _ in range(comm.size)]
        root = comm.size - 1

        def total(xs, name=name, root=root):
            ys = together(name, [ops.tanh(x) for x in xs], root)
            return sum(loss_of(rank, y) for rank, y in enumerate(ys))

        def loss(x, name=name, root=root):
            return loss_of(comm.rank, apart(name, ops.tanh(x), comm, root))

        gradient = fdbr.grad(loss)
        jitted = fdbr.jit(gradient)
        if comm.rank % 2 and name != "scatter":  # of which others do not know what comes
            jitted.compile(xs[comm.rank])
        expected = fdbr.grad(total)(xs)[comm.rank]
        twice = fdbr.hvp(total, (xs,), (xs,))[comm.rank]
        x = xs[comm.rank]
        for found in gradient(x), jitted(x), jitted(x):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(fdbr.hvp(loss, (x,), (x,)), twice, rtol=1e-10, atol=1e-12)


@fdbr.jit
def decided(x):
    total = distributed.all_reduce(x, comm)
    own = total * 2 if total > 3 * comm.rank else total + 1  # ranks decide apart
    return distributed.all_reduce(own, comm)


totals = [comm.size * float(x) for x in range(3)] * 4
sums = [sum(t * 2 if t > 3 * r else t + 1 for r in range(comm.size)) for t in totals]
assert [float(decided(np.float64(t / comm.size))) for t in totals] == sums
print("whole", flush=True)
