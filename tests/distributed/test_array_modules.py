"""What ranks do together on arrays of every array module, and what wires round."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import nn, ops, train
from fdbr.testing import assert_allclose

REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter"]
MOVES = ["broadcast", "gather", "all_gather", "scatter", "all_to_all"]
SIZE = 2


def objective(name, comm, **kwargs):
    """A function of a matrix that uses a collective twice, each time in another way."""

    def f(x):
        y = getattr(d, name)(ops.sin(x) * (1.0 + comm.rank), comm, **kwargs)
        if y is None:
            y = ops.sin(x)  # there is as much to do on the ranks that get nothing
            y = ops.stack([y] * comm.size) if name == "gather" else y
        z = d.all_reduce(ops.cos(y) * y, comm)
        return (y**2).sum() + (z * y).sum() + (x**3).sum()

    return f


def transformed(f, x):
    """Derivatives of all kinds, and the function jitted and batched."""
    return {
        "value and gradient": fdbr.value_and_grad(f)(x),
        "tangent": fdbr.jvp(f, (x,), (x * 0.5,)),
        "jitted": fdbr.jit(fdbr.grad(f))(x),
        "checkpointed": fdbr.grad(fdbr.checkpoint(f))(x),
        "second": fdbr.grad(lambda x: (fdbr.grad(f)(x) * x).sum())(x),
        "batched": fdbr.vmap(fdbr.grad(f))(ops.stack([x, x * 2])),
    }


def data(rank):
    return np.random.default_rng(rank).normal(size=(2 * SIZE, 3))


@pytest.mark.parametrize("name", REDUCTIONS + MOVES)
def test_derivatives_are_those_of_numpy(xp, to_numpy, name):
    def run(module):
        return d.run_in_threads(
            lambda comm: transformed(objective(name, comm), module.asarray(data(comm.rank))), SIZE
        )

    found, expected = run(xp), run(np)
    for mine, theirs in zip(found, expected, strict=True):
        assert all(isinstance(leaf, xp.ndarray | np.generic) for leaf in fdbr.tree.leaves(mine))
        assert_allclose(fdbr.tree.map(to_numpy, mine), theirs, rtol=1e-12)


@pytest.mark.parametrize("op", ["mean", "max", "min"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_derivatives_of_other_reductions_are_those_of_numpy(xp, to_numpy, name, op):
    def run(module):
        def f(comm):
            x = module.asarray(data(comm.rank))
            return fdbr.value_and_grad(objective(name, comm, op=op))(x)

        return d.run_in_threads(f, SIZE)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        assert_allclose(fdbr.tree.map(to_numpy, mine), theirs, rtol=1e-12)


def test_messages_have_derivatives_on_every_array_module(xp, to_numpy):
    def run(module):
        def f(comm):
            other = 1 - comm.rank

            def loss(x):
                token = d.send(x**2, comm, to=other)
                y = d.receive(x, comm, source=other, after=token)
                return (d.after(y, token) * x).sum()

            return fdbr.value_and_grad(loss)(module.asarray(data(comm.rank)))

        return d.run_in_threads(f, 2)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        assert_allclose(fdbr.tree.map(to_numpy, mine), theirs, rtol=1e-12)


@given(st.integers(1, 3), st.sampled_from(REDUCTIONS + MOVES), st.data())
def test_trees_of_any_arrays_go_between_ranks(xp, to_numpy, size, name, draw):
    shapes = draw.draw(st.lists(st.sampled_from([(), (0,), (2,), (3, 2)]), max_size=4))
    kinds = ["float16", "float32", "complex64", "int16", "bool", ml_dtypes.bfloat16, "uint8"]
    op = draw.draw(st.sampled_from(["sum", "max"]))
    refused = {"sum": ["bool"], "max": ["complex64"]}[op] if name in REDUCTIONS else []
    dtypes = [draw.draw(st.sampled_from([k for k in kinds if k not in refused])) for _ in shapes]
    kwargs = {"op": op} if name in REDUCTIONS else {}

    def run(module):
        def f(comm):
            rng = np.random.default_rng(comm.rank)
            arrays = []
            for shape, dtype in zip(shapes, dtypes, strict=True):
                lead = (size,) if name in ("scatter", "reduce_scatter", "all_to_all") else ()
                host = np.asarray(rng.normal(size=(*lead, *shape[::-1])) * 9)
                host = (host > 0 if dtype == "bool" else np.abs(host)).astype(dtype)
                array = module.asarray(host)
                arrays.append(array.T if not lead else array)  # which is not contiguous
            return getattr(d, name)({"a": arrays, "none": None}, comm, **kwargs)

        return d.run_in_threads(f, size)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        assert fdbr.tree.structure(mine) == fdbr.tree.structure(theirs)
        for a, b in zip(fdbr.tree.leaves(mine), fdbr.tree.leaves(theirs), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_array_equal(to_numpy(a), b)


# --- wires ----------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning:shadow")
WIRES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("wire", WIRES)
@given(
    st.integers(1, 4),
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=9),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["sum", "mean"]),
)
def test_sums_over_a_wire_are_rounded_once_on_either_way(xp, to_numpy, wire, size, xs, dtype, op):
    """Each term once when it is sent, and the sum, of float32, once when it comes back."""
    short = WIRES[wire]
    terms = [(np.array(xs) / (1 + rank)).astype(dtype) for rank in range(size)]

    def f(comm):
        return d.all_reduce(xp.asarray(terms[comm.rank]), comm, op, wire=wire)

    with np.errstate(over="ignore"):
        sent = [term.astype(short).astype(np.float32) for term in terms]
        total = sum(sent[1:], start=sent[0])
        total = total / np.float32(size) if op == "mean" else total
        expected = total.astype(short).astype(dtype)
    exact = np.sum(terms, axis=0, dtype=np.float64) / (size if op == "mean" else 1)
    scale = np.sum(np.abs(terms), axis=0, dtype=np.float64) / (size if op == "mean" else 1)
    eps = float(ml_dtypes.finfo(short).eps) / 2
    tiny = float(ml_dtypes.finfo(short).smallest_subnormal) * (size + 1)
    for found in d.run_in_threads(f, size):
        assert found.dtype == dtype
        host = to_numpy(found)
        np.testing.assert_array_equal(host, expected)
        finite = np.isfinite(expected)
        bound = 2 * eps * scale * (1 + 2 * eps) + tiny
        assert (np.abs(host - exact) <= bound)[finite].all()


@pytest.mark.parametrize("wire", WIRES)
@given(st.lists(st.floats(width=32), min_size=4, max_size=4), st.sampled_from(MOVES))
def test_what_a_wire_only_moves_is_rounded_once(xp, to_numpy, wire, xs, name):
    x = np.array(xs, np.float32)
    with np.errstate(over="ignore"):
        expected = x.astype(WIRES[wire]).astype(np.float32)
    whole = d.run_in_threads(lambda comm: getattr(d, name)(xp.asarray(x), comm, wire=wire), 1)[0]
    np.testing.assert_array_equal(to_numpy(whole).reshape(-1), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@given(st.integers(1, 4), st.lists(st.floats(-100, 100), min_size=1, max_size=7))
def test_short_numbers_are_added_up_in_float32(xp, to_numpy, dtype, size, xs):
    terms = [(np.array(xs) / (1 + rank)).astype(dtype) for rank in range(size)]
    total = sum(term.astype(np.float32) for term in terms)
    found = d.run_in_threads(lambda c: d.all_reduce(xp.asarray(terms[c.rank]), c), size)
    for part in found:
        assert part.dtype == dtype
        np.testing.assert_array_equal(to_numpy(part), np.asarray(total).astype(dtype))


def test_what_is_short_or_no_float_does_not_change_over_a_wire(xp, to_numpy):
    tree = [np.arange(3), np.array([True, False]), np.array([1j]), np.float16([0.1])]
    found = d.run_in_threads(
        lambda comm: d.broadcast([xp.asarray(x) for x in tree], comm, wire="bfloat16"), 2
    )
    for part in found:
        for a, b in zip(part, tree, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(to_numpy(a), b)


# --- training -------------------------------------------------------------------------


def regression(params, batch):
    y = ops.tanh(batch["x"] @ params["w"]) @ params["v"]
    return ((y - batch["y"]) ** 2).mean()


def training_data(module):
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(3, 4)), "v": rng.normal(size=4), "steps": 3, "none": None}
    params = {k: module.asarray(v) if isinstance(v, np.ndarray) else v for k, v in params.items()}
    batch = {"x": rng.normal(size=(6, 3)), "y": rng.normal(size=6)}
    return params, {k: module.asarray(v) for k, v in batch.items()}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("options", [{}, {"wire": "bfloat16"}, {"double_buffering": True}])
def test_training_with_averaged_gradients_is_that_of_numpy(xp, to_numpy, jitted, options):
    def run(module):
        def f(comm):
            params, batch = training_data(module)
            own = {k: v[:4] if comm.rank == 0 else v[4:] for k, v in batch.items()}
            optimizer = train.optim.chain(
                d.average_gradients(comm, **options), train.optim.adam(0.1)
            )

            def step(params, state):
                grads = fdbr.grad(regression)(params, own)
                n = float(own["y"].shape[0])
                updates, state = optimizer.update(grads, state, params, weight=n)
                return train.optim.apply_updates(params, updates), state

            step = fdbr.jit(step) if jitted else step
            state = optimizer.init(params)
            for _ in range(4):
                params, state = step(params, state)
            return {k: params[k] for k in "wv"}

        return d.run_in_threads(f, 2)

    found, expected = run(xp), run(np)
    for mine, theirs in zip(found, expected, strict=True):
        assert all(isinstance(leaf, xp.ndarray) for leaf in mine.values())
        assert_allclose(fdbr.tree.map(to_numpy, mine), theirs, rtol=1e-6)


@pytest.mark.parametrize("jitted", [False, True])
def test_overlapped_gradients_are_those_of_numpy(xp, to_numpy, jitted):
    def run(module):
        def f(comm):
            params, batch = training_data(module)
            own = {k: v[:4] if comm.rank == 0 else v[4:] for k, v in batch.items()}
            g = d.value_and_grad(
                regression, comm, weight=lambda p, b: b["y"].shape[0], bucket_bytes=40
            )
            return (fdbr.jit(g) if jitted else g)(params, own)

        return d.run_in_threads(f, 2)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        assert_allclose(fdbr.tree.map(to_numpy, mine), theirs, rtol=1e-9)


def test_batch_normalisation_by_all_ranks_is_that_of_numpy(xp, to_numpy):
    def run(module):
        def f(comm):
            layer = nn.BatchNorm.init(None, 3, dtype=np.float64)
            own = d.sync_batch_norm(fdbr.tree.map(module.asarray, layer), comm)
            x = module.asarray(data(comm.rank)[: 2 + comm.rank])

            def loss(layer, x):
                y, after = layer.train(x)
                return ops.sum(ops.sin(y) * x), after

            return fdbr.value_and_grad(loss, has_aux=True)(own, x)

        return d.run_in_threads(f, 2)

    for mine, theirs in zip(run(xp), run(np), strict=True):
        mine, theirs = fdbr.tree.leaves(mine), fdbr.tree.leaves(theirs)
        assert_allclose(list(map(to_numpy, mine)), theirs, rtol=1e-9)


def test_snapshots_of_all_ranks_hold_arrays_of_every_module(xp, to_numpy, tmp_path):
    def f(comm):
        state = {"w": xp.asarray(np.arange(4.0)), "n": 3, "h": xp.asarray(np.float16([1.5]))}
        report = train.Report(1, 1, {}, state, train.Position(1, 0), 0.1)
        for _ in d.snapshot(tmp_path, comm, every=train.every(iterations=1))(iter([report])):
            pass
        like = {k: v if k == "n" else xp.zeros_like(v) for k, v in state.items()}
        return d.resume(tmp_path, like, comm).state

    for state in d.run_in_threads(f, 2):
        assert isinstance(state["w"], xp.ndarray)
        assert to_numpy(state["w"]).tolist() == [0, 1, 2, 3]
        assert state["h"].dtype == np.float16
