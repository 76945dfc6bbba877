"""Fourier transforms: values, exact transposes, dtypes, lengths and errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose
from ops.cases_arrays import FOURIER
from ops.laws import check_laws

NORMS = ["backward", "ortho", "forward"]
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
SEVERAL = ["fftn", "ifftn", "rfftn", "irfftn"]
REAL_INPUT = {"rfft", "rfftn", "ihfft"}


def numbers(seed, *shape, real=False):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=shape)
    return x if real else x + 1j * generator.normal(size=shape)


@pytest.mark.parametrize("case", FOURIER, ids=repr)
def test_derivatives_and_batches_obey_the_laws(case):
    @settings(max_examples=3)
    @given(case.arguments)
    def check(args):
        check_laws(case, args)

    check()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
@given(length=st.integers(1, 6), n=st.none() | st.integers(1, 8), axis=st.integers(-2, 1))
@settings(max_examples=15)
def test_values_are_numpys_for_every_length(name, norm, length, n, axis):
    x = numbers(0, length, length + 1, real=name in REAL_INPUT)
    params = {"n": n, "axis": axis, "norm": norm}
    if name in ("irfft", "hfft") and n is None and x.shape[axis] == 1:
        with pytest.raises(ValueError, match=f"fft.{name}.*give n"):
            getattr(ops.fft, name)(x, **params)
        return
    desired = getattr(np.fft, name)(x, **params)
    assert_allclose(getattr(ops.fft, name)(x, **params), desired)
    assert_allclose(fdbr.vmap(lambda x: getattr(ops.fft, name)(x, **params))(x[None])[0], desired)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SEVERAL)
def test_values_along_several_axes_are_numpys(name, norm):
    x = numbers(0, 3, 4, 5, real=name in REAL_INPUT)
    for axes in ((0, 1), (2, 0), (-1,), (1, 2, 0)):
        for s in (None, [6, 3, 4][: len(axes)], [-1, 3, -1][: len(axes)]):
            desired = getattr(np.fft, name)(x, s=s, axes=axes, norm=norm)
            assert_allclose(getattr(ops.fft, name)(x, s=s, axes=axes, norm=norm), desired)
    assert_allclose(getattr(ops.fft, name)(x, norm=norm), getattr(np.fft, name)(x, norm=norm))
    lengths = getattr(np.fft, name)(x, s=(3, 2), axes=(1, 2), norm=norm)
    assert_allclose(getattr(ops.fft, name)(x, s=(3, 2), norm=norm), lengths)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_the_transpose_is_exact(name, norm):
    """It is that of the matrix whose columns are the transforms of the unit vectors."""
    for length, n in ((4, None), (5, None), (3, 6), (6, 3), (2, 1), (1, 2)):
        f = lambda x, n=n: getattr(ops.fft, name)(x, n=n, norm=norm)
        real = name in REAL_INPUT
        x = numbers(1, length, real=real)
        out, pullback = fdbr.vjp(f, x)
        units = np.eye(length) if real else np.concatenate([np.eye(length), 1j * np.eye(length)])
        columns = np.stack([f(unit) for unit in units])
        ct = numbers(2, *out.shape, real=out.dtype.kind == "f")
        # The convention: of a real function u of z = x + iy the derivative is du/dx - i du/dy.
        derivatives = (columns @ ct).real
        desired = derivatives if real else derivatives[:length] - 1j * derivatives[length:]
        assert_allclose(pullback(ct)[0], desired)
        t = numbers(3, length, real=real)
        assert_allclose(fdbr.jvp(f, (x,), (t,))[1], f(t))


@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_single_precision_stays(name, xp, to_numpy):
    x = xp.asarray(numbers(0, 3, 4, real=name in REAL_INPUT).astype(
        np.float32 if name in REAL_INPUT else np.complex64
    ))  # fmt: skip
    f = getattr(ops.fft, name)
    out, pullback = fdbr.vjp(f, x)
    assert f(x).dtype == out.dtype == getattr(np.fft, name)(to_numpy(x)).dtype
    assert out.dtype.itemsize in (4, 8)
    gradient = pullback(out)[0]
    assert (type(gradient), gradient.dtype, gradient.shape) == (type(x), x.dtype, x.shape)


def test_whole_numbers_become_floating_ones():
    x = np.arange(4)
    assert_allclose(ops.fft.fft(x), np.fft.fft(x))
    assert_allclose(ops.fft.rfft(x), np.fft.rfft(x))
    assert_allclose(fdbr.vmap(ops.fft.fft)(x[None])[0], np.fft.fft(x))


def test_the_gradient_of_a_real_function_of_a_complex_signal_is_parsevals():
    z = numbers(0, 8)
    energy = lambda z: ops.sum(ops.real(ops.fft.fft(z) * ops.conj(ops.fft.fft(z))))
    assert_allclose(fdbr.grad(energy)(z), 2 * 8 * z.conj())


def test_batches_of_nothing_and_transforms_along_no_axis():
    assert ops.fft.fft(np.ones((0, 4))).shape == (0, 4)
    assert ops.fft.rfftn(np.ones((0, 4)), axes=(1,)).shape == (0, 3)
    out = ops.fft.fftn(np.ones((2, 2), np.float32), axes=())
    assert (out.dtype, out.shape) == (np.complex64, (2, 2))
    gradient = fdbr.grad(lambda x: ops.sum(ops.real(ops.fft.fft(x, n=4))))(np.ones((0, 2)))
    assert gradient.shape == (0, 2)


@pytest.mark.parametrize("n", range(1, 8))
def test_frequencies_are_numpys(n):
    assert_allclose(ops.fft.fftfreq(n, d=0.5), np.fft.fftfreq(n, 0.5))
    assert_allclose(ops.fft.rfftfreq(n, d=0.5), np.fft.rfftfreq(n, 0.5))
    assert ops.fft.fftfreq(n, dtype=np.float32, device="cpu").dtype == np.float32
    x = numbers(0, n, n + 1)
    for axes in (None, 0, (1,), (0, 1)):
        assert_allclose(ops.fft.fftshift(x, axes=axes), np.fft.fftshift(x, axes))
        assert_allclose(ops.fft.ifftshift(ops.fft.fftshift(x, axes=axes), axes=axes), x)


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: ops.fft.fft(x, norm="unit"), ValueError, "norm is 'unit'; it is one of"),
        (lambda x: ops.fft.fft(x, axis=2), ValueError, "fft.fft: axis 2 is out of range"),
        (lambda x: ops.fft.fft(x, n=0), ValueError, r"fft.fft: x float64\[2,3\] cannot .*\(0,\)"),
        (lambda x: ops.fft.fftn(x, axes=(0, 0)), ValueError, "fft.fftn: axis .* twice"),
        (lambda x: ops.fft.fftn(x, s=(2,), axes=(0, 1)), ValueError, "1 lengths for 2 axes"),
        (lambda x: ops.fft.rfft(x + 0j), TypeError, "fft.rfft: x is complex128.*fft.fft"),
        (lambda x: ops.fft.rfftn(x, axes=()), ValueError, "fft.rfftn: there is no axis"),
        (lambda x: ops.fft.irfft(x[:, :1]), ValueError, "fft.irfft: .* would be 0 long"),
        (lambda x: ops.fft.fftfreq(0), ValueError, "fft.fftfreq: n must be at least 1, got 0"),
        (
            lambda x: ops.fft.rfftfreq(2.0),
            TypeError,
            "n must be an integer, got float 2.0",
        ),
        (lambda x: ops.fft.fftshift(x, axes=3), ValueError, "fft.fftshift: axis 3"),
    ],
)
def test_errors_say_what_is_wrong(f, error, words):
    with pytest.raises(error, match=words):
        f(np.ones((2, 3)))
    with pytest.raises(error, match=words):
        fdbr.vjp(lambda x: (f(x), x)[1], np.ones((2, 3)))
