"""Every collective beside NumPy, on the ranks of a program: for test_processes.py."""

import ml_dtypes
import numpy as np

from fdbr import distributed as d

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "e", "f", "d", "F", "D", "bfloat16"]
SHAPES = [(), (3,), (0, 2), (2, 3)]


def made(rank, shape, dtype, seed=0):
    """An array that each rank can compute for every rank."""
    values = np.random.default_rng(100 * seed + rank).integers(0, 2 if dtype == "?" else 9, shape)
    dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = np.asarray(values).astype(dtype)
    if values.ndim == 2:
        return np.asfortranarray(values)  # it does not lie in memory as it is sent
    return values + np.array(1j, dtype) * rank if dtype.kind == "c" else values


def same(found, wanted):
    np.testing.assert_array_equal(np.asarray(found), wanted, strict=True)


def all_same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        same(one, other)


def reductions(xs, kind):
    """Those that are defined for arrays of a kind, with their results; ``xs`` is of all ranks."""
    dtype = xs[0].dtype
    wide = np.stack(xs).astype("f") if dtype.itemsize == 2 and kind == "f" else np.stack(xs)
    found = {}
    if kind != "b":
        found["sum"] = wide.sum(0, dtype=wide.dtype).astype(dtype)
    if kind in "fc":
        total = wide.sum(0, dtype=wide.dtype)
        found["mean"] = (total / np.asarray(len(xs), total.dtype)).astype(dtype)
    if kind != "c":
        found["max"] = wide.max(0).astype(dtype)
        found["min"] = wide.min(0).astype(dtype)
    return {op: np.asarray(value) for op, value in found.items()}


def check(comm):
    """Every collective on a tree of arrays of one dtype, for every dtype."""
    n, rank = comm.size, comm.rank
    last = n - 1
    for dtype in DTYPES:
        xs = [[made(r, shape, dtype) for r in range(n)] for shape in SHAPES]
        x = [of_ranks[rank] for of_ranks in xs]
        kind = "f" if dtype == "bfloat16" else x[0].dtype.kind
        wanted = [reductions(of_ranks, kind) for of_ranks in xs]
        for op in wanted[0]:
            all_same(d.all_reduce(x, comm, op), [w[op] for w in wanted])
        total = d.reduce(x, comm, op, root=last)
        assert (total is None) is (rank != last)
        if rank == last:
            all_same(total, [w[op] for w in wanted])
        all_same(d.broadcast(x, comm, root=last), [of_ranks[last] for of_ranks in xs])
        same(d.broadcast(x[1] if rank == 0 else None, comm), xs[1][0])
        all_same(d.all_gather(x, comm), [np.stack(of_ranks) for of_ranks in xs])
        stacked = d.gather(x, comm, root=last)
        assert (stacked is None) is (rank != last)
        if rank == last:
            all_same(stacked, [np.stack(of_ranks) for of_ranks in xs])
        before = (rank - 1) % n
        around = d.send_receive(x, comm, (rank + 1) % n, before, x, 5)
        all_same(around, [of_ranks[before] for of_ranks in xs])
        rows = [[made(r, (2 * n, *shape), dtype, 1) for r in range(n)] for shape in SHAPES]
        mine = slice(2 * rank, 2 * rank + 2)
        given = [of_ranks[rank] for of_ranks in rows]
        first = [of_ranks[0] for of_ranks in rows]
        all_same(d.scatter(first, comm), [row[mine] for row in first])
        same(d.scatter(first[3] if rank == 0 else None, comm), first[3][mine])
        moved = [np.concatenate([row[mine] for row in of_ranks]) for of_ranks in rows]
        all_same(d.all_to_all(given, comm), moved)
        op = "max" if kind == "b" else "sum"
        parts = [reductions(of_ranks, kind)[op][mine] for of_ranks in rows]
        all_same(d.reduce_scatter(given, comm, op), parts)


def check_trees(comm):
    """Trees of many leaves, of several dtypes, with nothing in some places."""
    n, rank = comm.size, comm.rank
    tree = {
        "a": np.full((2, 3), rank + 0.5, "f"),
        "b": [None, np.float64(rank), np.arange(4) * rank],
        "c": np.full((300_000,), rank, "f"),
        "d": np.full((3, 700_001), rank + 1.0),
    }
    total = d.all_reduce(tree, comm)
    same(total["a"], np.full((2, 3), sum(range(n)) + 0.5 * n, "f"))
    assert total["b"][0] is None
    assert total["b"][1] == sum(range(n))
    same(total["d"], np.full((3, 700_001), n * (n + 1) / 2))
    same(total["c"], np.full((300_000,), sum(range(n)), "f"))
    gathered = d.all_gather(tree, comm)
    same(gathered["d"], np.stack([np.full((3, 700_001), r + 1.0) for r in range(n)]))
    first = d.broadcast(tree, comm)
    assert first["b"][1] == 0
    large = np.arange(n * 1_000_003, dtype="f")
    part = slice(rank * 1_000_003, (rank + 1) * 1_000_003)
    same(d.reduce_scatter(large, comm, "max"), large[part])
    sent = d.send_receive(tree["d"], comm, (rank + 1) % n, (rank - 1) % n)
    same(sent, np.full((3, 700_001), (rank - 1) % n + 1.0))
    for wire, error in (("float16", 2e-3), ("bfloat16", 2e-2)):
        x = np.linspace(1, 2, 1001)
        close = d.all_reduce(x, comm, "mean", wire=wire)
        assert close.dtype == x.dtype
        np.testing.assert_allclose(close, x, rtol=error)


def check_order(comm):
    """Sums have the same bits on all ranks and in each run."""
    x = np.random.default_rng(comm.rank).standard_normal(100_003).astype("f")
    once = d.all_reduce(x, comm)
    for _ in range(3):
        same(d.all_reduce(x, comm), once)
    for theirs in d.all_gather(once, comm):
        same(theirs, once)


def check_objects(comm):
    n, rank = comm.size, comm.rank
    assert d.all_gather_object({"a": rank, "b": "x" * 10_000 * rank}, comm)[n - 1]["a"] == n - 1
    assert d.broadcast_object([rank], comm, n - 1) == [n - 1]
    assert d.scatter_object(list("abcd")[:n] if rank == 0 else None, comm) == "abcd"[rank]
    gathered = d.gather_object(rank, comm)
    assert gathered == (list(range(n)) if rank == 0 else None)
    d.send_object({"large": b"x" * 100_000, "rank": rank}, comm, (rank + 1) % n, 7)
    assert d.receive_object(comm, (rank - 1) % n, 7)["rank"] == (rank - 1) % n


def check_splits(comm):
    """Parts of the ranks, which do not hear one another, and are ordered as is asked."""
    odd = comm.split(comm.rank % 2, -comm.rank)
    members = [r for r in range(comm.size) if r % 2 == comm.rank % 2][::-1]
    assert odd.size == len(members)
    assert members[odd.rank] == comm.rank
    assert d.all_gather(comm.rank, odd).tolist() == members
    assert comm.split(comm.rank % 2, -comm.rank).transport is odd.transport
    none = comm.split(None if comm.rank else 3)
    assert (none is None) is (comm.rank > 0)


world = d.world(timeout=30.0)
assert world.backend == "mpi"
assert world.intra_size == world.size
assert (world.node, world.nodes, world.intra_rank) == (0, 1, world.rank)
for size in range(1, world.size + 1):
    part = world.split(0 if world.rank < size else None)
    if part is not None:
        check(part)
        check_trees(part)
        check_order(part)
        check_objects(part)
check_splits(world)
d.barrier(world)
print("whole", flush=True)
