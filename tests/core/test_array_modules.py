"""Which module an array belongs to, who may write to it, and moving it between devices."""

import mmap
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import backend
from fdbr.core.array_modules import array_module, device_get, device_put, is_locked, lock, protect
from fdbr.core.tape import ReverseTrace

# --- which module -------------------------------------------------------------------


class Namespace:
    """An array module of somebody else's."""

    __name__ = "somebody.else"


class Foreign:
    namespace = Namespace()

    def __array_namespace__(self, *, api_version=None):
        return self.namespace


@pytest.mark.parametrize(
    "values",
    [
        (),
        (np.ones(2),),
        (np.float32(1), 2.0),
        (1, 2.0, 3j, True, None),
        ("text", [1, 2], object()),
        (np.ma.array([1.0]),),
        (np.array(["s"]),),
    ],
)
def test_numpy_is_the_module_of_its_arrays_and_where_there_are_none(values):
    assert array_module(*values) is np


def test_arrays_that_answer_array_namespace_are_taken_as_they_are():
    assert array_module(Foreign()) is Foreign.namespace
    assert array_module(2.0, Foreign(), None) is Foreign.namespace
    assert array_module(np.float64(2.0), Foreign()) is Foreign.namespace


def test_the_module_of_every_array_module_s_arrays(xp):
    expected = array_module(xp.asarray(np.ones(2)))
    assert expected.asarray(np.ones(2)).shape == (2,)
    assert type(expected.asarray(np.ones(2))) is type(xp.asarray(np.ones(2)))
    assert array_module(1.0, xp.asarray(np.ones(2)), None) is expected


def test_traced_values_belong_to_the_module_of_what_is_below():
    trace, outer = ReverseTrace("grad", len), ReverseTrace("grad", len)
    assert array_module(trace.input(1.0)) is np
    foreign = trace.input(Foreign())
    assert array_module(foreign) is Foreign.namespace
    assert array_module(np.ones(2), outer.input(foreign)) is Foreign.namespace


def test_arrays_are_told_from_numbers():
    assert backend.is_array(np.ones(2))
    assert backend.is_array(np.float32(1))
    assert backend.is_array(Foreign())
    assert not any(map(backend.is_array, (1, 2.0, "text", None, [1])))


# --- who may write ------------------------------------------------------------------


def test_lock_makes_an_array_read_only_and_returns_it():
    x = np.ones(2)
    assert lock(x) is x
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 2


def test_lock_of_a_view_locks_what_it_shows():
    base = np.ones((2, 3))
    view = lock(base.T[1:])
    assert not view.flags.writeable
    assert not base.flags.writeable
    assert is_locked(view)


@pytest.mark.parametrize("value", [1.0, "text", None, np.float32(1), [1, 2]])
def test_lock_passes_by_what_has_no_such_flag(value):
    assert lock(value) is value


def read_only(array):
    array.flags.writeable = False
    return array


def mapped(tmp_path, mode):
    np.save(tmp_path / "x.npy", np.ones(3))
    return np.load(tmp_path / "x.npy", mmap_mode=mode)


def anonymous_map():
    return np.frombuffer(mmap.mmap(-1, 24))


ARRAYS = {
    "an array": (lambda tmp: np.ones(3), False),
    "a view": (lambda tmp: np.ones(6)[::2], False),
    "an array that its owner locked": (lambda tmp: read_only(np.ones(3)), False),
    "a read-only array": (lambda tmp: lock(np.ones(3)), True),
    "a read-only view": (lambda tmp: read_only(np.ones(6)[::2]), False),
    "a view of a read-only array": (lambda tmp: lock(np.ones(6))[::2], True),
    "a broadcast array": (lambda tmp: np.broadcast_to(np.ones(1), 3), False),
    "a broadcast read-only array": (lambda t: np.broadcast_to(lock(np.ones(1)), 3), True),
    "a 0-d array": (lambda tmp: np.array(1.0), False),
    "a scalar": (lambda tmp: np.float32(1), True),
    "over bytes": (lambda tmp: np.frombuffer(bytes(24)), True),
    "over a bytearray": (lambda tmp: np.frombuffer(bytearray(24)), False),
    "over a read-only memoryview of bytes": (
        lambda tmp: np.frombuffer(memoryview(bytes(24))),
        True,
    ),
    "over a read-only memoryview of a bytearray": (
        lambda tmp: np.frombuffer(memoryview(bytearray(24)).toreadonly()),
        False,
    ),
    "over a memoryview of an array": (lambda tmp: np.asarray(memoryview(np.ones(3))), False),
    "over a memoryview of a read-only array": (
        lambda tmp: np.asarray(memoryview(lock(np.ones(3)))),
        True,
    ),
    "over an anonymous map": (lambda tmp: anonymous_map(), False),
    "a file mapped for writing": (lambda tmp: mapped(tmp, "r+"), False),
    "a file mapped for reading": (lambda tmp: mapped(tmp, "r"), True),
    "a private map of a file": (lambda tmp: mapped(tmp, "c"), False),
    "a subclass": (lambda tmp: np.ma.array(np.ones(3)), False),
    "an exchanged array": (lambda tmp: read_only(np.from_dlpack(np.ones(3))), False),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_locked_when_nobody_can_write_to_its_memory(name, tmp_path):
    make, expected = ARRAYS[name]
    assert is_locked(make(tmp_path)) is expected


@pytest.mark.parametrize("name", ARRAYS)
def test_protect_copies_exactly_what_is_not_locked(name, tmp_path):
    make, locked = ARRAYS[name]
    array = make(tmp_path)
    writeable = array.flags.writeable
    safe = protect(array)
    assert (safe is array) == locked
    assert is_locked(safe)
    assert np.array_equal(safe, array)
    assert safe.dtype == array.dtype
    assert array.flags.writeable == writeable
    if not locked:
        assert not np.shares_memory(safe, array)


@pytest.mark.parametrize("value", [1.0, None, "text", [1, 2]])
def test_protect_passes_by_what_is_no_array(value):
    assert protect(value) is value


def test_protect_on_every_array_module(xp, to_numpy):
    x = xp.asarray(np.ones(3))
    safe = protect(x)
    x[...] = 7.0
    assert to_numpy(safe).tolist() == [1.0] * 3


@given(st.lists(st.sampled_from(["T", "half", "flat", "row"]), max_size=4))
def test_the_owner_of_a_view_is_the_array_at_its_end(steps):
    base = np.ones((4, 4, 4))
    view = base
    for step in steps:
        if step == "T":
            view = view.T
        elif step == "half":
            view = view[..., ::1]
        elif step == "flat":
            view = view.reshape(view.shape)
        else:
            view = view[:]
    assert backend.owner(view) is base


# --- devices ------------------------------------------------------------------------


@fdbr.frozen
class Model:
    weight: object
    mean: object = fdbr.buffer(default=None)
    name: str = fdbr.static(default="model")


def test_a_round_trip_over_the_cpu_keeps_everything():
    weight = np.ones((2, 3), np.float32)
    t = {"model": [weight, Model(weight, np.arange(3))], "step": 3, "text": "s"}
    there = device_put(t, "cpu")
    for moved in (there, device_get(there)):
        assert (moved["model"][0] == weight).all()
        assert moved["model"][1] == t["model"][1]
        assert (moved["step"], moved["text"]) == (3, "s")
    assert not there["model"][0].flags.writeable
    assert weight.flags.writeable
    weight[...] = 7
    assert (there["model"][0] == 1).all()


def test_what_is_read_only_already_is_not_copied():
    weight = lock(np.ones(3))
    assert device_get([weight])[0] is weight
    assert device_put([weight], "cpu")[0] is weight


def test_device_get_brings_arrays_of_every_module_to_the_host(xp):
    there = device_get({"a": xp.asarray(np.ones(3)), "b": 2.0, "c": None})
    assert type(there["a"]) is np.ndarray
    assert there["a"].tolist() == [1.0] * 3
    assert not there["a"].flags.writeable
    assert (there["b"], there["c"]) == (2.0, None)


@pytest.mark.parametrize("device", [None, 0, 1])
def test_a_gpu_without_cupy_is_an_error_that_says_what_to_install(monkeypatch, device):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        ImportError, match=r"fdbr\.device_put: device .* CuPy.*pip install 'fdbr\[gpu\]'"
    ):
        device_put(np.ones(2), device)
