"""Collectives of ranks that are entries of a list: what derivatives are compared with."""

import functools

from fdbr import distributed as d
from fdbr import ops

NAMES = (
    *("sum", "mean", "max", "min", "reduce", "reduce_mean", "reduce_max", "broadcast", "gather"),
    *("all_gather", "scatter", "reduce_scatter", "reduce_scatter_mean", "all_to_all", "ring"),
)
DIVIDING = ("scatter", "reduce_scatter", "reduce_scatter_mean", "all_to_all")


def apart(name, x, comm, root=0):
    """A collective of this rank with the others; `None` where it gets nothing."""
    match name:
        case "sum" | "mean" | "max" | "min":
            return d.all_reduce(x, comm, name)
        case "reduce" | "reduce_mean" | "reduce_max":
            return d.reduce(x, comm, name.partition("_")[2] or "sum", root)
        case "broadcast":
            return d.broadcast(x if comm.rank == root else ops.zeros_like(x), comm, root)
        case "gather":
            return d.gather(x, comm, root)
        case "scatter":
            return d.scatter(x if comm.rank == root else None, comm, root)
        case "reduce_scatter" | "reduce_scatter_mean":
            return d.reduce_scatter(x, comm, name[15:] or "sum")
        case "ring":
            n = comm.size
            return d.send_receive(x, comm, to=(comm.rank + 1) % n, source=(comm.rank - 1) % n)
        case _:
            return getattr(d, name)(x, comm)


def together(name, xs, root=0):
    """The same for all ranks in one process: what each gets."""
    n = len(xs)
    ranks = range(n)
    whole = ops.stack(xs)
    parts = [_parts(x, n) for x in xs] if name in DIVIDING else None
    match name:
        case "sum" | "mean" | "max" | "min":
            return [getattr(ops, name)(whole, axis=0)] * n
        case "reduce" | "reduce_mean" | "reduce_max":
            total = getattr(ops, name.partition("_")[2] or "sum")(whole, axis=0)
            return [total if rank == root else None for rank in ranks]
        case "broadcast":
            return [xs[root]] * n
        case "gather":
            return [whole if rank == root else None for rank in ranks]
        case "all_gather":
            return [whole] * n
        case "scatter":
            return parts[root]
        case "reduce_scatter" | "reduce_scatter_mean":
            sums = [functools.reduce(ops.add, [part[rank] for part in parts]) for rank in ranks]
            return [one / n for one in sums] if name.endswith("mean") else sums
        case "all_to_all":
            return [ops.concat([part[rank] for part in parts]) for rank in ranks]
        case "ring":
            return [xs[(rank - 1) % n] for rank in ranks]
    raise ValueError(name)


def _parts(x, n):
    rows = x.shape[0] // n
    return [x[i * rows : (i + 1) * rows] for i in range(n)]
