"""The shadow module refuses what CuPy refuses, and computes what NumPy computes."""

import copy

import numpy as np
import pytest
import shadow

xp = shadow.module
HOST = np.arange(3.0)


@pytest.fixture
def a():
    return shadow.asarray(np.arange(6.0).reshape(2, 3))


def test_it_converts_to_numpy_only_when_asked(a):
    with pytest.raises(TypeError, match=r"use \.get"):
        np.asarray(a)
    assert type(a.get()) is np.ndarray
    assert shadow.to_numpy(a).shape == (2, 3)


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + HOST,
        lambda a: HOST + a,
        lambda a: a @ HOST,
        lambda a: HOST < a,
        lambda a: xp.add(a, HOST),
        lambda a: xp.add(a, np.array(1.0)),
        lambda a: xp.add(HOST, HOST),
        lambda a: xp.concatenate([a[0], HOST]),
        lambda a: xp.where(a > 0, a, HOST),
        lambda a: xp.sum(a, axis=0, out=HOST),
        lambda a: xp.einsum("ij,j->i", a, HOST),
        lambda a: xp.add.at(a, (0,), HOST),
        lambda a: a.dot(HOST),
        lambda a: a[np.array([0, 1])],
        lambda a: a[0, np.array([0, 1])],
        lambda a: a.__setitem__(0, HOST),
        lambda a: a.__iadd__(HOST),
    ],
)
def test_it_refuses_numpy_arrays(a, mix):
    with pytest.raises(TypeError):
        mix(a)


def test_an_in_place_operator_of_a_numpy_array_refuses_it(a):
    host = np.zeros((2, 3))
    with pytest.raises(TypeError):
        host += a


@pytest.mark.parametrize("call", [np.sum, np.shape, np.result_type, lambda a: np.stack([a, a])])
def test_numpy_functions_called_by_name_refuse_it(a, call):
    with pytest.raises(TypeError):
        call(a)


def test_numpy_ufuncs_are_handed_to_its_own(a):
    for result in (np.tanh(a), np.add(a, 1), np.maximum(a, a), np.float32(2) * a):
        assert type(result) is shadow.Array
    host = a.get()
    np.testing.assert_array_equal(np.add.reduce(a).get(), np.add.reduce(host))
    np.testing.assert_array_equal(np.multiply.outer(a, a).get(), np.multiply.outer(host, host))
    for mix in (lambda: np.add(a, HOST), lambda: np.add(a, [1]), lambda: np.spacing(a)):
        with pytest.raises(TypeError):
            mix()


class Other:
    """An operand that NumPy's protocol asks, as fdbr's traced values are."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return ufunc.__name__, [type(value).__name__ for value in inputs]


def test_operators_with_other_operands_go_through_numpys_ufuncs(a):
    assert a + Other() == ("add", ["Array", "Other"])
    assert np.less(a, Other()) == ("less", ["Array", "Other"])
    assert (a @ Other())[0] == "matmul"
    assert (a >= Other())[0] == "greater_equal"
    assert not (a == None).get().any()  # noqa: E711


def test_scalars_mix_and_python_scalars_are_weak(a):
    single = a.astype(np.float32)
    for result in (single + 1.5, 2 * single, np.float32(2) * single, xp.maximum(single, 0.0)):
        assert type(result) is shadow.Array
        assert result.dtype == np.float32
    assert (np.float64(2) * single).dtype == np.float64


def test_reductions_and_elements_are_0d_arrays(a):
    for result in (a.sum(), xp.max(a), a[1, 2], xp.add.reduce(a, axis=None), xp.sqrt(2.0)):
        assert type(result) is shadow.Array
        assert result.shape == ()
    assert float(a.sum()) == 15.0
    assert a[1, 2].item() == 5.0


def test_a_0d_array_is_no_index():
    with pytest.raises(TypeError):
        range(xp.asarray(3))


def test_there_is_no_write_protection(a):
    assert not hasattr(a, "setflags")
    assert not hasattr(a.flags, "writeable")


@pytest.mark.parametrize("name", ["errstate", "vecdot", "unstack", "matvec", "random", "ma"])
def test_what_cupy_lacks_is_missing(name):
    assert not hasattr(xp, name)
    assert not hasattr(xp.linalg, "matrix_norm")


def test_dtypes_and_constants_are_numpys():
    assert xp.float32 is np.float32
    assert xp.pi == np.pi
    assert xp.newaxis is None
    assert xp.result_type(np.float32, np.int8) == np.float32


def test_functions_compute_what_numpy_computes(a):
    host = a.get()
    np.testing.assert_array_equal((a @ a.T).get(), host @ host.T)
    np.testing.assert_array_equal((1 - a / 2).get(), 1 - host / 2)
    np.testing.assert_array_equal(xp.stack([a, -a], axis=1).get(), np.stack([host, -host], 1))
    np.testing.assert_array_equal(a[:, xp.asarray([2, 0])].get(), host[:, [2, 0]])
    np.testing.assert_array_equal(a[a > 2].get(), host[host > 2])
    np.testing.assert_array_equal(xp.fft.rfft(a).get(), np.fft.rfft(host))
    q, r = xp.linalg.qr(a)
    np.testing.assert_allclose((q @ r).get(), host)
    parts = xp.split(a, 3, axis=1)
    assert [p.shape for p in parts] == [(2, 1)] * 3
    windows = xp.lib.stride_tricks.sliding_window_view(a, 2, axis=1)
    assert windows.shape == (2, 2, 2)


def test_writing_changes_the_array_and_its_views(a):
    row = a[0]
    assert row.base is a
    assert row[1:].base is a
    assert a.base is None
    row += 1
    a[1] = 0.0
    a[xp.asarray([1]), 0] = shadow.asarray([8.0])
    xp.add.at(a, (xp.asarray([1, 1]), 1), 1.0)
    np.testing.assert_array_equal(a.get(), [[1, 2, 3], [8, 2, 0]])


def test_out_returns_the_very_array(a):
    out = xp.empty_like(a)
    assert xp.multiply(a, 2, out=out) is out
    assert out[1, 1].item() == 8.0


def test_asarray_copies_from_the_host_and_not_from_itself(a):
    host = np.zeros(2)
    moved = xp.asarray(host)
    host[0] = 1.0
    assert moved[0].item() == 0.0
    assert xp.asarray(a) is a
    assert xp.asarray(host, dtype=np.float32).dtype == np.float32


def test_copies_are_independent(a):
    for other in (a.copy(), copy.copy(a), copy.deepcopy(a), xp.array(a)):
        other[0, 0] = 9.0
    assert a[0, 0].item() == 0.0


# --- where CuPy computes in another way --------------------------------------------------


def test_places_out_of_range_wrap_around():
    a = shadow.asarray(np.arange(4.0))
    assert a[xp.asarray([5, -6])].tolist() == [1.0, 2.0]
    assert xp.take(a, xp.asarray([4])).tolist() == [0.0]
    a[xp.asarray([7])] = 9.0
    xp.add.at(a, xp.asarray([4]), 1.0)
    assert a.tolist() == [1.0, 1.0, 2.0, 9.0]


def test_of_values_for_one_place_the_first_stays_in_one_call_and_the_last_in_another():
    left = set()
    for _ in range(2):
        a = xp.zeros(1)
        a[xp.asarray([0, 0])] = xp.asarray([1.0, 2.0])
        left.add(a.item())
    assert left == {1.0, 2.0}


@pytest.mark.parametrize("dtype", ["?", "b", "h", "F", "D"])
def test_few_dtypes_are_added_in_place(dtype):
    a = xp.zeros(2, dtype=dtype)
    with pytest.raises(TypeError):
        xp.add.at(a, xp.asarray([0]), a[:1])
    with pytest.raises(TypeError):
        xp.maximum.at(a, xp.asarray([0]), a[:1])


def test_extremes_in_place_go_through_single_precision_and_skip_nan():
    a = xp.zeros(2)
    xp.maximum.at(a, xp.asarray([0, 1]), xp.asarray([1 + 1e-12, np.nan]))
    assert a.tolist() == [1.0, 0.0]


def test_linear_algebra_gives_nan_unless_it_is_told_to_raise():
    singular = shadow.asarray(np.stack([np.zeros((2, 2)), np.eye(2)]))
    assert np.isnan(xp.linalg.inv(singular).get()).all(axis=(1, 2)).tolist() == [True, False]
    with shadow.beside.errstate(linalg="raise"), pytest.raises(np.linalg.LinAlgError):
        xp.linalg.inv(singular)
    with pytest.raises(np.linalg.LinAlgError):
        xp.linalg.inv(xp.zeros((2, 3)))


def test_logical_functions_take_no_complex_numbers_and_dlpack_no_device(a):
    with pytest.raises(TypeError):
        xp.logical_not(a + 0j)
    with pytest.raises(NotImplementedError):
        xp.from_dlpack(a, device=0)
    with pytest.raises(TypeError):
        xp.from_dlpack(a.get())


def test_arrays_lie_on_the_device_that_was_current_and_do_not_mix(a):
    with shadow.Device(1):
        b = xp.zeros((2, 3))
        assert (b + 1).device == b.device == shadow.Device(1)
        with pytest.raises(ValueError, match="different from the current device"):
            a + a
    for mix in (lambda: a + b, lambda: b + 1, lambda: a.__setitem__(0, b[0])):
        with pytest.raises(ValueError, match="different from the current device"):
            mix()
    assert b[0].device == b.T.device == shadow.Device(1)
    assert xp.asarray(b).device == b.copy().device == a.device == shadow.Device(0)


def test_kernels_and_waits_are_counted(a):
    with shadow.counting() as tally:
        b = (a + 1)[0]
        b.sum()
        a.T.reshape(2, 3)
        float(b[0])
        bool(b[0])
    assert (tally.launches, tally.waits) == (3, 2)  # a transposed array is copied to be reshaped


def test_it_names_its_module(a):
    assert a.__array_namespace__() is xp


def test_it_runs_under_the_name_of_any_module(xp, to_numpy):
    """The parameter `xp` of conftest.py, as an op's test uses it."""
    total = xp.sum(xp.asarray([1.0, 2.0]) ** 2)
    assert to_numpy(total) == 5.0
