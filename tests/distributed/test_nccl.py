"""Arrays on devices between ranks: over a stand-in for NCCL, and by way of host memory."""

import threading
import time

import ml_dtypes
import numpy as np
import pytest
import shadow
from distributed.standing_in import run_on_devices, several_devices
from hypothesis import example, given
from hypothesis import strategies as st
from shadow import devices, nccl

import fdbr
from fdbr import distributed as d
from fdbr.core import devices as libraries
from fdbr.distributed import communicator
from fdbr.distributed.transports.choosing import own_device, with_devices
from fdbr.distributed.transports.cliques import Clique

DTYPES = [
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    ml_dtypes.bfloat16,
]
REDUCTIONS = ["all_reduce", "reduce", "reduce_scatter"]
MOVES = ["broadcast", "gather", "all_gather", "scatter", "all_to_all"]
ROOTED = ["reduce", "broadcast", "gather", "scatter"]


def made(seed, rank, shape, dtype):
    rng = np.random.default_rng([seed, rank])
    x = rng.normal(size=shape) * 8
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    x = (np.abs(x) if np.dtype(dtype).kind == "u" else x).astype(dtype)
    if x.size > 2 and np.dtype(dtype).kind == "f" and rank == 1:
        x.reshape(-1)[0] = np.nan  # which NCCL loses, and NumPy does not
    return x


def called(name, op, root, wire):
    """A collective with its arguments."""
    kwargs = {"wire": wire}
    if name in ROOTED:
        kwargs["root"] = root
    if name in REDUCTIONS:
        kwargs["op"] = op
    return lambda x, comm: getattr(d, name)(x, comm, **kwargs)


def on_host(tree):
    return fdbr.tree.map(shadow.to_numpy, tree)


def assert_same(found, expected):
    assert fdbr.tree.structure(found) == fdbr.tree.structure(expected)
    for a, b in zip(fdbr.tree.leaves(found), fdbr.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


@st.composite
def calls(draw):
    size = draw(st.integers(1, 4))
    name = draw(st.sampled_from(REDUCTIONS + MOVES))
    dtype = draw(st.sampled_from(DTYPES))
    op = draw(st.sampled_from(["sum", "mean", "max", "min"]))
    kind = np.dtype(dtype).kind
    if op == "mean" and kind in "iub":
        op = "max"
    if kind == "c":
        op = "sum"
    if kind == "b" and op == "sum":
        op = "min"
    first = draw(st.sampled_from([(), (size,), (0,), (2 * size, 3)]))
    if name in ("scatter", "all_to_all", "reduce_scatter") and not first:
        first = (size,)
    wire = draw(st.sampled_from([None, None, "float16", "bfloat16"]))
    root = draw(st.integers(0, size - 1))
    return size, name, op, root, wire, first, dtype, draw(st.integers(0, 9))


@given(calls(), st.booleans())
@example((3, "all_reduce", "max", 0, None, (6, 3), "float32", 0), True)
@example((3, "reduce_scatter", "min", 0, None, (6, 3), "float64", 0), True)
@example((4, "all_reduce", "sum", 0, None, (8, 3), "int16", 0), True)
@example((2, "all_reduce", "sum", 0, None, (), "complex64", 0), True)
def test_devices_give_what_host_memory_gives(call, use_nccl):
    size, name, op, root, wire, shape, dtype, seed = call
    collective = called(name, op, root, wire)

    def host(comm):
        x = made(seed, comm.rank, shape, dtype)
        given = {"x": x, "none": None, "n": np.int32(comm.rank) if op != "mean" else x}
        if name in ("scatter", "all_to_all", "reduce_scatter") or x.dtype.kind == "b":
            given = x
        if name in ("broadcast", "scatter") and comm.rank != root and given is x:
            given = None
        return collective(given, comm)

    expected = d.run_in_threads(host, size)
    with several_devices() as module:

        def there(comm):
            x = made(seed, comm.rank, shape, dtype)
            x = fdbr.device_put(x, comm.rank)
            # One that lies in host memory, and one that lies on another device, are beside it.
            number = np.int32(comm.rank)
            other = fdbr.device_put(made(seed, comm.rank, shape, dtype), (comm.rank + 1) % 4)
            given = {"x": x, "none": None, "n": number if op != "mean" else other}
            if name in ("scatter", "all_to_all", "reduce_scatter") or x.dtype.kind == "b":
                given = x
            if name in ("broadcast", "scatter") and comm.rank != root and given is x:
                given = None
            out = collective(given, comm)
            first = fdbr.tree.leaves(out)
            if isinstance(out, dict):
                assert isinstance(out["n"], shadow.Array) == (op == "mean")
                if op == "mean":
                    assert out["n"].device.id == (comm.rank + 1) % 4
                first = [out["x"]]
            assert all(leaf.device.id == comm.rank for leaf in first)
            return on_host(out)

        found = run_on_devices(there, size, use_nccl=use_nccl)
        assert module.wrong == []
        assert bool(module.calls) <= use_nccl
        assert nccl.idle()
    for a, b in zip(found, expected, strict=True):
        assert_same(a, b)


@given(st.integers(1, 4), st.sampled_from(REDUCTIONS + MOVES), st.integers(0, 3))
def test_all_ranks_make_the_same_calls_in_the_same_order(size, name, root):
    with several_devices() as module:

        def f(comm):
            x = fdbr.device_put(np.ones((2 * size, 3), np.float32), comm.rank)
            called(name, "sum", root % size, None)((x, x.astype("int64"), x[0:0]), comm)
            d.barrier(comm)
            return called("all_reduce", "sum", 0, None)(x, comm)

        run_on_devices(f, size)
        assert module.wrong == []
        for ranks in module.calls.values():
            together = {
                tuple(call for call in calls if call[0] not in ("send", "recv"))
                for calls in ranks.values()
            }
            assert len(ranks) == size
            assert len(together) == 1
            sent = sorted((r, c[-1], c[1]) for r in ranks for c in ranks[r] if c[0] == "send")
            got = sorted((c[-1], r, c[1]) for r in ranks for c in ranks[r] if c[0] == "recv")
            assert sent == got


def test_few_calls_move_a_tree():
    with several_devices() as module:

        def f(comm):
            tree = [fdbr.device_put(np.ones((i, 2), np.float32), comm.rank) for i in range(20)]
            return d.all_reduce(tree, comm)

        run_on_devices(f, 2)
        assert list(module.calls[1].values()) == [[("allReduce", 380, 7, 0)]] * 2


def test_nothing_of_an_array_on_a_device_goes_by_host_memory(monkeypatch):
    def refuse(self):
        raise AssertionError("an array was copied to host memory")

    with several_devices():

        def f(comm):
            x = fdbr.device_put(np.arange(4.0), comm.rank)
            others = [d.all_reduce(x, comm), d.all_gather(x, comm), d.broadcast(x, comm)]
            others += [d.all_reduce(x, comm, wire="bfloat16"), d.all_to_all(x, comm)]
            neighbour = (comm.rank + 1) % 2
            return others, d.send_receive(x, comm, to=neighbour, source=neighbour)

        monkeypatch.setattr(shadow.Array, "get", refuse)
        run_on_devices(f, 2)


# --- messages -------------------------------------------------------------------------


@given(st.permutations(range(5)), st.integers(0, 4), st.booleans())
def test_messages_are_found_by_their_tags_in_any_order(order, empty, use_nccl):
    sizes = [0 if i == empty else i + 1 for i in range(5)]

    def f(comm):
        if comm.rank == 0:
            for i in range(5):
                d.send(fdbr.device_put(np.full(sizes[i], i, np.float32), 0), comm, to=1, tag=i)
            return None
        like = [fdbr.device_put(np.zeros(sizes[i], np.float32), 1) for i in range(5)]
        return [d.receive(like[i], comm, source=0, tag=i).get() for i in order]

    with several_devices() as module:
        found = run_on_devices(f, 2, use_nccl=use_nccl)[1]
        assert module.wrong == []
    for i, x in zip(order, found, strict=True):
        np.testing.assert_array_equal(x, np.full(sizes[i], i))


def test_a_rank_goes_on_before_its_message_is_received():
    def f(comm):
        other = 1 - comm.rank
        x = fdbr.device_put(np.full(3, comm.rank, np.int16), comm.rank)
        for tag in range(3):
            d.send({"x": x, "y": x * 2.5, "on host": np.ones(2)}, comm, to=other, tag=tag)
        d.send(x, comm, to=comm.rank)
        mine = d.receive(x, comm, source=comm.rank)
        like = {"x": x, "y": x * 2.5, "on host": np.ones(2)}
        return [d.receive(like, comm, source=other, tag=tag) for tag in range(3)], mine

    with several_devices() as module:
        for rank, (found, mine) in enumerate(run_on_devices(f, 2)):
            assert mine.get().tolist() == [rank] * 3
            for tree in found:
                assert tree["x"].device.id == rank
                assert tree["x"].get().tolist() == [1 - rank] * 3
                assert tree["y"].get().tolist() == [(1 - rank) * 2.5] * 3
                assert type(tree["on host"]) is np.ndarray
        assert module.wrong == []


@pytest.mark.parametrize("use_nccl", [True, False])
def test_a_message_that_is_not_like_what_is_waited_for_is_an_error(use_nccl):
    def f(comm):
        x = fdbr.device_put(np.ones(3), comm.rank)
        if comm.rank == 0:
            d.send(x.get(), comm, to=1)
        else:
            d.receive(x, comm, source=0)

    with several_devices(), pytest.raises(d.MismatchError, match=r"gpu:float64\[3\]"):
        run_on_devices(f, 2, use_nccl=use_nccl)


def test_too_many_messages_before_one_are_an_error():
    def f(comm):
        x = fdbr.device_put(np.ones(1), comm.rank)
        if comm.rank == 0:
            for tag in range(70):
                d.send(x, comm, to=1, tag=tag)
        else:
            d.receive(x, comm, source=0, tag=69)

    with several_devices(), pytest.raises(d.DistributedError, match="69 messages with other tags"):
        run_on_devices(f, 2)


# --- agreement ------------------------------------------------------------------------


def test_ranks_whose_arrays_lie_in_other_memory_are_told():
    def f(comm):
        x = np.ones(2)
        d.all_reduce(fdbr.device_put(x, 0) if comm.rank == 0 else x, comm)

    with several_devices(), pytest.raises(d.MismatchError, match=r"rank 0: .* of gpu:float64\[2\]"):
        run_on_devices(f, 2)


def test_parts_of_a_communicator_have_devices_too():
    def f(comm):
        part = comm.split(comm.rank % 2)
        x = fdbr.device_put(np.full(2, comm.rank), comm.rank)
        assert comm.split(None if comm.rank else 0) is None or comm.rank == 0
        return part.backend, d.all_reduce(x, part).get().tolist()

    with several_devices() as module:
        assert run_on_devices(f, 3) == [("nccl", [2, 2]), ("nccl", [1, 1]), ("nccl", [2, 2])]
        assert module.wrong == []
        assert run_on_devices(f, 3, use_nccl=False)[0] == ("threads", [2, 2])


def test_a_duplicate_is_used_by_another_thread_at_once():
    def f(comm):
        same = comm.transport.duplicate()
        x = fdbr.device_put(np.ones(5), comm.rank)
        y = fdbr.device_put(np.ones(5), comm.rank)

        def beside():
            with shadow.Device(comm.rank):
                for _ in range(20):
                    same.all_reduce(y, "sum")

        thread = threading.Thread(target=beside)
        thread.start()
        for _ in range(20):
            comm.transport.all_reduce(x, "sum")
        thread.join()
        assert x.get().tolist() == y.get().tolist() == [2.0**20] * 5

    with several_devices() as module:
        run_on_devices(f, 2)
        assert module.wrong == []


# --- failure --------------------------------------------------------------------------


def summed(comm):
    return d.all_reduce(fdbr.device_put(np.ones(2), comm.rank), comm)


def test_an_error_of_nccl_is_named():
    with several_devices() as module:
        module.failing.add(("allReduce", 1))
        with pytest.raises(
            d.DistributedError,
            match=r"fdbr.distributed.all_reduce: NCCL failed on rank 1 \(device 1\): .*INTERNAL",
        ):
            run_on_devices(summed, 3, timeout=30.0)


def test_a_rank_whose_communicator_has_ended_ends_there_again():
    def f(comm):
        with pytest.raises(d.DistributedError, match="NCCL failed"):
            summed(comm)
        with pytest.raises(d.DistributedError, match="NCCL failed"):
            summed(comm)

    with several_devices() as module:
        module.failing.add(("allReduce", 0))
        run_on_devices(f, 1)


def test_another_ranks_error_ends_the_wait_for_it():
    def f(comm):
        start = time.monotonic()
        if comm.rank == 0:
            with pytest.raises(d.RankFailedError, match="REMOTE"):
                summed(comm)
        else:
            with pytest.raises(d.DistributedError):
                summed(comm)
        assert time.monotonic() - start < 5

    with several_devices() as module:
        module.reports = True
        module.failing.add(("allReduce", 1))
        run_on_devices(f, 2, timeout=10.0)


def test_an_error_that_comes_later_ends_the_call():
    with several_devices() as module:
        module.stalled = True
        module.failing.add(("async", 0))
        with pytest.raises(d.DistributedError, match="all_reduce: NCCL failed on rank 0"):
            run_on_devices(summed, 2, timeout=2.0)


@pytest.mark.parametrize("trouble", ["stalled", "blocking", "joining"])
def test_what_is_never_done_is_ended_by_the_time_out(trouble):
    with several_devices() as module:
        if trouble == "stalled":
            module.stalled = True
        elif trouble == "blocking":
            module.blocking.add(("allReduce", 0))
        else:
            module.blocking.add(("init", 1))
        start = time.monotonic()
        with pytest.raises(d.CollectiveTimeoutError, match=r"waited 0\.3 s"):
            run_on_devices(summed, 2, timeout=0.3)
        assert time.monotonic() - start < 3


def test_a_send_that_failed_is_told_by_the_next_one():
    def f(comm):
        x = fdbr.device_put(np.ones(2), comm.rank)
        if comm.rank == 0:
            d.send(x, comm, to=1)
            end = time.monotonic() + 5
            while time.monotonic() < end:
                time.sleep(0.01)
                d.send(x, comm, to=1)

    with several_devices() as module:
        module.failing.add(("init", 0))
        with pytest.raises(d.DistributedError, match="NCCL could not send to rank 1"):
            run_on_devices(f, 2)


# --- choosing -------------------------------------------------------------------------


def test_nccl_is_chosen_where_each_rank_has_a_device():
    with several_devices() as module:
        assert run_on_devices(lambda comm: comm.backend, 2) == ["nccl"] * 2
        # Five ranks have but four devices; ranks without NCCL or devices go by host memory.
        assert run_on_devices(lambda comm: comm.backend, 5) == ["threads"] * 5
        x = run_on_devices(lambda c: d.all_reduce(fdbr.device_put(np.ones(2), None), c).get(), 5)
        assert all(part.tolist() == [5, 5] for part in x)
        with pytest.raises(d.DistributedError, match="ranks 0 and 4 have the same device"):
            run_on_devices(lambda comm: None, 5, use_nccl=True)
        module.available = False
        assert run_on_devices(lambda comm: comm.backend, 2) == ["threads"] * 2
        with pytest.raises(d.DistributedError, match="on rank 0 CuPy finds no NCCL"):
            run_on_devices(lambda comm: None, 2, use_nccl=True)


def test_a_device_that_was_chosen_is_kept():
    def f(comm):
        if comm.rank == 0:
            shadow.Device(3).use()
        own_device(comm.transport)
        return devices.current()

    with several_devices():
        assert d.run_in_threads(f, 3) == [3, 1, 2]


def test_without_devices_a_transport_stays_what_it_is(monkeypatch):
    def none():
        raise ImportError("no cupy")

    monkeypatch.setattr(libraries, "accelerator", none)
    serial = d.serial().transport
    assert with_devices(serial, 1.0) is serial
    with pytest.raises(d.DistributedError, match="on rank 0 CuPy is not installed"):
        with_devices(serial, 1.0, nccl=True)


def test_the_world_of_one_rank_takes_nccl_by_name(monkeypatch):
    monkeypatch.setattr(communicator, "_worlds", {})
    for name in communicator._LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    with several_devices() as module:
        comm = d.world("nccl", timeout=5.0)
        assert comm is d.world("nccl", timeout=5)
        assert (comm.backend, comm.size) == ("nccl", 1)
        x = fdbr.device_put(np.arange(3.0), 0)
        assert d.all_reduce(x, comm).get().tolist() == [0, 1, 2]
        assert d.all_gather(x, comm).get().tolist() == [[0, 1, 2]]
        assert d.all_reduce(np.ones(2), comm).tolist() == [1, 1]
        assert d.world().backend == "serial"
        assert len(module.calls[1][0]) == 2


def test_a_transport_that_reads_devices_gets_them_as_they_are():
    def f(comm):
        comm.transport.reads_devices = True
        both = d.Communicator(with_devices(comm.transport, 5.0, nccl=False), 5.0)
        x = fdbr.device_put(np.arange(4.0) + comm.rank, 0)
        found = [called(name, "sum", 1, None)(x, both) for name in REDUCTIONS + MOVES]
        message = d.send_receive(x, both, to=1 - comm.rank, source=1 - comm.rank)
        return on_host([found, message])

    def host(comm):
        x = np.arange(4.0) + comm.rank
        found = [called(name, "sum", 1, None)(x, comm) for name in REDUCTIONS + MOVES]
        return [found, d.send_receive(x, comm, to=1 - comm.rank, source=1 - comm.rank)]

    with several_devices():
        found = d.run_in_threads(f, 2)
    for a, b in zip(found, d.run_in_threads(host, 2), strict=True):
        assert_same(a, b)


# --- where there are GPUs ---------------------------------------------------------------


def gpus():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    count = libraries.devices_of(cupy)
    if not count:
        pytest.skip("there is no GPU")
    if not cupy.cuda.nccl.available:
        pytest.skip("CuPy finds no NCCL")
    return cupy, count


@pytest.mark.parametrize("name", REDUCTIONS + MOVES)
def test_gpus_give_what_host_memory_gives(name):
    cupy, count = gpus()
    size = min(count, 4)
    shape = 4 * size, 3

    def calls(move, comm):
        for dtype in DTYPES[:-1]:
            op = {"b": "max", "c": "sum"}.get(np.dtype(dtype).kind, "sum")
            x = move(made(0, comm.rank, shape, dtype))
            yield called(name, op, size - 1, None)(x, comm)

    def f(comm):
        with cupy.cuda.Device(comm.rank):
            both = d.Communicator(with_devices(comm.transport, 30.0, nccl=True), 30.0)
            return [None if out is None else out.get() for out in calls(cupy.asarray, both)]

    expected = d.run_in_threads(lambda comm: list(calls(np.asarray, comm)), size)
    for found, wanted in zip(d.run_in_threads(f, size), expected, strict=True):
        for a, b in zip(found, wanted, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype.itemsize < 8 else 1e-12)


def test_gpus_send_messages_to_each_other():
    cupy, count = gpus()
    if count < 2:
        pytest.skip("there is one GPU")

    def f(comm):
        with cupy.cuda.Device(comm.rank):
            transport = with_devices(comm.transport, 30.0, nccl=True)
            comm = d.Communicator(transport, 30.0)
            x = cupy.full(1000, comm.rank)
            return d.send_receive(x, comm, to=1 - comm.rank, source=1 - comm.rank).get()

    first, second = d.run_in_threads(f, 2)
    assert (first == 1).all()
    assert (second == 0).all()


def test_a_gpu_that_waits_for_another_is_ended_by_the_time_out():
    cupy, count = gpus()
    if count < 2:
        pytest.skip("there is one GPU")
    key = cupy.cuda.nccl.get_unique_id()

    def f(comm):
        clique = Clique(cupy.cuda, comm.rank, 2, comm.rank, key, 10.0)
        clique._timeout = 1.0
        with cupy.cuda.Device(comm.rank):
            x = cupy.ones(8)
            if comm.rank == 0:
                clique.run(
                    "all_reduce", lambda c, s: c.allReduce(x.data.ptr, x.data.ptr, 8, 8, 0, s)
                )

    with pytest.raises(d.CollectiveTimeoutError, match="waited 1 s"):
        d.run_in_threads(f, 2)


def test_the_stand_in_is_called_as_cupys_own_module_is():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    real = cupy.cuda.nccl
    if not real.available:
        pytest.skip("CuPy finds no NCCL")
    with several_devices() as module:
        for name in dir(module):
            if name.startswith("NCCL_"):
                assert getattr(module, name) == getattr(real, name), name
        for name in vars(nccl.Communicator):
            if (
                name[0] != "_"
                and name not in ("enqueue",)
                and callable(vars(nccl.Communicator)[name])
            ):
                assert hasattr(real.NcclCommunicator, name), name
