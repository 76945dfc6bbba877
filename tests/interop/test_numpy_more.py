"""More of plain NumPy on traced values: sorting, joining, statistics, polynomials, transforms."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr.testing import assert_allclose, check_grads

A = np.array([[0.52, 1.27, 2.08], [0.83, 0.31, 1.64]])
B = np.array([0.5, 2.03, 0.75])
GAPS = np.array([[False, True, False], [False, False, False]])
FAR = np.array([[np.inf, 0.0, -np.inf], [0.0, 0.0, 0.0]])
PLACES = np.array([0.0, 0.4, 1.1])


def gaps(x: Any) -> Any:
    """An array with NaN in it."""
    return np.where(GAPS, np.nan, x)


def parts(z: Any) -> Any:
    """A complex result as real numbers."""
    return np.concatenate([np.real(z), np.imag(z)])


# What is done with a matrix of positive numbers, by the NumPy function that is called.
CALLS: dict[Any, list[Any]] = {
    np.allclose: [
        lambda x: x * (2 if np.allclose(x, A, atol=0.5) else 3),
        lambda x: x * np.allclose(x, B),
    ],
    np.angle: [lambda x: np.angle(x + 1j), lambda x: np.angle(1j * x + 2, deg=True)],
    np.append: [lambda x: np.append(x, 1.0), lambda x: np.append(A, x, axis=1)],
    np.apply_along_axis: [
        lambda x: np.apply_along_axis(np.sum, 0, x),
        lambda x: np.apply_along_axis(lambda row: np.outer(row, row), 1, x),
        lambda x: np.apply_along_axis(lambda row: row * 2 if row[0] > 0.6 else row[::-1], -1, x),
    ],
    np.apply_over_axes: [lambda x: np.apply_over_axes(np.sum, x, (0, 1))],
    np.argpartition: [lambda x: x[0, np.argpartition(x[0], 1)[1]]],
    np.argsort: [lambda x: x[0, np.argsort(x[0])], lambda x: np.ravel(x)[np.argsort(x, axis=None)]],
    np.argwhere: [lambda x: x[tuple(np.argwhere(x > 1)[0])]],
    np.array2string: [lambda x: x * len(np.array2string(x)) ** 0],
    np.array_equal: [lambda x: x * np.array_equal(x, x * 1), lambda x: x + np.array_equal(x, B)],
    np.array_equiv: [
        lambda x: x + np.array_equiv(x, A[:1]),
        lambda x: x + np.array_equiv(x, B[:2]),
    ],
    np.array_repr: [lambda x: x * len(np.array_repr(x)) ** 0],
    np.array_str: [lambda x: x * len(np.array_str(x)) ** 0],
    np.atleast_3d: [np.atleast_3d, lambda x: np.atleast_3d(x[0]), lambda x: np.atleast_3d(x[0, 0])],
    np.average: [
        np.average,
        lambda x: np.average(x, axis=1, weights=B),
        lambda x: np.average(x, axis=0, weights=x, keepdims=True),
        lambda x: np.multiply(*np.average(x, axis=0, returned=True)),
        lambda x: np.average(A, axis=(0, 1), weights=x, returned=True)[1],
    ],
    np.bincount: [
        lambda x: np.bincount([2, 0, 2], weights=x[0], minlength=4),
        lambda x: np.bincount((x > 1).ravel() + 1) * x[0],
    ],
    np.block: [
        lambda x: np.block([[x, A], [A, x]]),
        lambda x: np.block([x[0], B]),
        lambda x: np.block(x),
    ],
    np.can_cast: [lambda x: x * np.can_cast(x, np.float32)],
    np.choose: [lambda x: np.choose([1, 0, 1], [x[0], x[1]])],
    np.column_stack: [lambda x: np.column_stack([x[:, 0], x, B[:2]])],
    np.common_type: [lambda x: x * np.common_type(x, A.astype(np.float32))(2)],
    np.compress: [lambda x: np.compress([True, False, True], x, axis=1)],
    np.convolve: [lambda x: np.convolve(x[0], B), lambda x: np.convolve(x[0], x[1, :2], "same")],
    np.corrcoef: [np.corrcoef, lambda x: np.corrcoef(x[0] ** 2, x[1])],
    np.correlate: [lambda x: np.correlate(x[0], B, "full"), lambda x: np.correlate(B, x[0])],
    np.cov: [
        np.cov,
        lambda x: np.cov(x, rowvar=False, bias=True),
        lambda x: np.cov(x[0], x[1] ** 2, ddof=0),
        lambda x: np.cov(x, fweights=[1, 2, 3], aweights=x[0]),
        lambda x: np.cov(x[0]),
    ],
    np.cross: [lambda x: np.cross(x, B), lambda x: np.cross(B, x)],
    np.delete: [lambda x: np.delete(x, 1, axis=1), lambda x: np.delete(x, [0, 3])],
    np.diag: [lambda x: np.diag(x[0]), lambda x: np.diag(x, 1), lambda x: np.diag(x[1], -1)],
    np.diag_indices_from: [lambda x: x[:, :2][np.diag_indices_from(x[:, :2])]],
    np.diagflat: [lambda x: np.diagflat(x, 1)],
    np.digitize: [
        lambda x: np.digitize(x, [0.5, 1.0, 2.0]) * x,
        lambda x: np.digitize(x, [2.0, 1.0, 0.5], right=True) * x,
    ],
    np.dsplit: [lambda x: np.dsplit(x[None], 3)[1]],
    np.dstack: [lambda x: np.dstack([x, A]), lambda x: np.dstack([x[0], x[1]])],
    np.ediff1d: [np.ediff1d, lambda x: np.ediff1d(x, to_begin=1.0, to_end=x[0])],
    np.einsum_path: [
        lambda x: x * len(np.einsum_path("ij,kj,kl", x, A, x)[0]),
        lambda x: x * len(np.einsum_path(x, [0, 1], B, [1], optimize="optimal")[0]),
    ],
    np.extract: [lambda x: np.extract(A > 1, x), lambda x: np.extract(x > 1, A) * x[0, 0]],
    np.fix: [lambda x: np.fix(x) * x],
    np.flatnonzero: [lambda x: x.ravel()[np.flatnonzero(x > 1)]],
    np.geomspace: [lambda x: np.geomspace(x[0, 0], x[1, 1], 4)],
    np.gradient: [
        lambda x: np.gradient(x, axis=1),
        lambda x: np.multiply(*np.gradient(x, 2.0, PLACES)),
        lambda x: np.gradient(x, PLACES, axis=1, edge_order=2),
        lambda x: np.gradient(B, x[0].cumsum()),
    ],
    np.histogram: [
        lambda x: np.histogram(x, 3)[0] * x[0],
        lambda x: np.histogram(x, 3)[1],
        lambda x: np.histogram(A, [0.5, 1.0, 2.08], weights=x, density=True)[0],
        lambda x: np.histogram(x * 0 + 1, 2)[1],
    ],
    np.histogram_bin_edges: [lambda x: np.histogram_bin_edges(x, 4, range=(0, x[0, 0]))],
    np.hsplit: [lambda x: np.hsplit(x, 3)[1], lambda x: np.hsplit(x[0], [1])[1]],
    np.histogram2d: [
        lambda x: np.histogram2d(x[0], x[1], 3, weights=x[0] ** 2)[0],
        lambda x: np.histogram2d(x[0], B, [2, 3])[2],
        lambda x: np.histogram2d(A[0], A[1], [0.5, 1.0, 1.7], weights=x[1], density=True)[0],
        lambda x: np.histogram2d(A[0], B, [[0.5, 1.0], [0.0, 1.0, 3.0]], weights=x[1])[0],
    ],
    np.histogramdd: [
        lambda x: np.histogramdd(x.T, 2, weights=x[0])[0],
        lambda x: np.histogramdd(x.T, [2, 3])[1][1],
        lambda x: np.histogramdd([A[0], x[1], x[0]], [2, 1, 3], density=True, weights=x[1])[0],
        lambda x: np.histogramdd(A.T, 2, range=[(0.6, 2.0), None], weights=x[1])[0],
        lambda x: np.histogramdd(x)[0].sum() * x,
    ],
    np.i0: [np.i0],
    np.insert: [
        lambda x: np.insert(x, 1, 7.0),
        lambda x: np.insert(x, 1, B[:2], axis=1),
        lambda x: np.insert(A, [0, 2], x[:, :2], axis=1),
        lambda x: np.insert(x[0], 1, x[1]),
    ],
    np.interp: [lambda x: np.interp(x, [0.0, 1.0, 3.0], B), lambda x: np.interp(0.6, x[0], x[1])],
    np.intersect1d: [lambda x: np.intersect1d(x, x[0])],
    np.isclose: [
        lambda x: np.isclose(x, A[:1], 0.1) * x,
        lambda x: np.isclose(x, x, equal_nan=True) * x,
    ],
    np.iscomplex: [lambda x: np.iscomplex(x + 1j) * x],
    np.isin: [lambda x: np.isin(x, x[0]) * x, lambda x: np.isin(x, B, invert=True) * x],
    np.isneginf: [lambda x: np.isneginf(x) + x],
    np.isposinf: [lambda x: np.isposinf(x) + x],
    np.isreal: [lambda x: np.isreal(x + 1j) + x],
    np.ix_: [lambda x: x[np.ix_([0, 1], x[0] > 1)]],
    np.kron: [lambda x: np.kron(x, A), lambda x: np.kron(B, x)],
    np.lexsort: [lambda x: x[:, np.lexsort((x[0], x[1] > 1))]],
    np.linspace: [
        lambda x: np.linspace(x[0, 0], x[1, 1], 4),
        lambda x: np.linspace(0.0, x[0, 0], 3, retstep=True)[1],
        lambda x: np.linspace(x, B, 3) + np.linspace(x, 2.0, 1) + np.linspace(x[0, 0], x, 0).sum(),
    ],
    np.logspace: [lambda x: np.logspace(x[0, 0], x[1, 1], 3)],
    np.median: [
        np.median,
        lambda x: np.median(x, axis=1),
        lambda x: np.median(x, 0, keepdims=True),
    ],
    np.meshgrid: [
        lambda x: np.multiply(*np.meshgrid(x[0], B)),
        lambda x: np.multiply(*np.meshgrid(x[0], x[1, :2], indexing="ij", sparse=True)),
    ],
    np.min_scalar_type: [
        lambda x: x * np.min_scalar_type(x).itemsize,
        lambda x: x * np.min_scalar_type(x[0, 0] * 1e5).itemsize,
        lambda x: x * np.min_scalar_type(x[1, 1] * 1e30).itemsize,
    ],
    np.nan_to_num: [
        lambda x: np.nan_to_num(gaps(x)),
        lambda x: parts(np.nan_to_num(gaps(x) + 1j * x, nan=3.0)),
        lambda x: np.nan_to_num(np.where(FAR != 0, FAR, x), posinf=5.0) / 1e300,
    ],
    np.nanargmax: [lambda x: x[0] * np.nanargmax(gaps(x), axis=1)[0]],
    np.nanargmin: [lambda x: x * np.nanargmin(gaps(x))],
    np.nancumprod: [lambda x: np.nancumprod(gaps(x), axis=1)],
    np.nancumsum: [lambda x: np.nancumsum(gaps(x))],
    np.nanmax: [lambda x: np.nanmax(gaps(x), axis=1), lambda x: np.nanmax(gaps(x))],
    np.nanmean: [lambda x: np.nanmean(gaps(x), axis=0), lambda x: np.nanmean(gaps(x))],
    np.nanmedian: [lambda x: np.nanmedian(gaps(x)), lambda x: np.nanmedian(gaps(x), axis=1)],
    np.nanmin: [lambda x: np.nanmin(gaps(x), axis=0, keepdims=True)],
    np.nanpercentile: [lambda x: np.nanpercentile(gaps(x), [30.0, 55.0], axis=0)],
    np.nanprod: [lambda x: np.nanprod(gaps(x), axis=1)],
    np.nanquantile: [
        lambda x: np.nanquantile(gaps(x), 0.3, axis=1, keepdims=True),
        lambda x: np.nanquantile(gaps(x), [[0.2], [0.7]], axis=(0, 1)),
    ],
    np.nanstd: [lambda x: np.nanstd(gaps(x))],
    np.nansum: [lambda x: np.nansum(gaps(x), axis=0)],
    np.nanvar: [lambda x: np.nanvar(gaps(x), axis=1, ddof=1)],
    np.nonzero: [lambda x: x[np.nonzero(x > 1)]],
    np.packbits: [
        lambda x: x * np.packbits(x > 1),
        lambda x: x * np.packbits(np.concatenate([x > 1] * 4, 1), axis=1, bitorder="little")[0, 1],
        lambda x: x * np.packbits(np.argsort(x, axis=0), axis=-2)[0],
    ],
    np.pad: [
        lambda x: np.pad(x, 1),
        lambda x: np.pad(x, ((0, 1), (2, 0)), mode="edge"),
        lambda x: np.pad(x[0], 4, "reflect", reflect_type="odd"),
    ],
    np.partition: [lambda x: np.partition(x, 1)[:, 1]],
    np.percentile: [lambda x: np.percentile(x, 30.0), lambda x: np.percentile(x, [20, 60], axis=1)],
    np.piecewise: [
        lambda x: np.piecewise(x, [x > 1, x < 0.4], [np.sqrt, lambda v: v**3, 0.5]),
        lambda x: np.piecewise(x[0], A[0] > 1, [lambda v, k: k * v, -1.0], 3.0),
    ],
    np.polyadd: [lambda x: np.polyadd(x[0], x[1, :2])],
    np.poly: [
        lambda x: np.poly(x[0]),
        lambda x: np.poly(x[:, :2]),
        lambda x: np.poly(np.stack([x[0] + 1j, x[0] - 1j]).ravel()),
        lambda x: parts(np.poly(x[0] + 1j)),
        lambda x: x * np.poly(x[:, :0].ravel()),
    ],
    np.polydiv: [
        lambda x: np.polydiv(x.ravel(), B)[0],
        lambda x: np.polydiv(A.ravel(), x[1])[1],
        lambda x: np.polydiv(np.polymul(x[0], x[1]), x[1])[0],
        lambda x: np.polydiv(x[0, :2], x[1])[0] + np.polydiv(x[0, :2], x[1])[1],
    ],
    np.polyder: [lambda x: np.polyder(x[0]), lambda x: np.polyder(x[0], 2)],
    np.polyfit: [lambda x: np.polyfit(PLACES, x[0], 1), lambda x: np.polyfit(x[0], B, 2)],
    np.polyint: [lambda x: np.polyint(x[0]), lambda x: np.polyint(x[0], 2, k=[1.0, 2.0])],
    np.polymul: [lambda x: np.polymul(x[0], x[1])],
    np.polysub: [lambda x: np.polysub(x[0, 1:], B)],
    np.polyval: [lambda x: np.polyval(B, x), lambda x: np.polyval(x[0], x[1])],
    np.ptp: [np.ptp, lambda x: np.ptp(x, axis=1)],
    np.quantile: [
        lambda x: np.quantile(x, 0.3),
        lambda x: np.quantile(x, [0.3, 0.8], axis=0, keepdims=True),
        lambda x: np.quantile(A, x / 3),
        lambda x: np.quantile(x, 0.3, method="nearest"),
    ],
    np.ravel_multi_index: [lambda x: x * np.ravel_multi_index((x.argmax(), 1), (6, 2))],
    np.real_if_close: [
        lambda x: np.real_if_close(x) + np.real_if_close(x + 1e-15j),
        lambda x: parts(np.real_if_close(x + 1e-3j)),
        lambda x: np.real_if_close(x + 1e-3j, tol=0.1),
    ],
    np.repeat: [lambda x: np.repeat(x, 2), lambda x: np.repeat(x, [2, 0, 1], axis=1)],
    np.resize: [lambda x: np.resize(x, (2, 4)), lambda x: np.resize(x, 5)],
    np.rollaxis: [lambda x: np.rollaxis(x, 1), lambda x: np.rollaxis(x[None], 0, 3)],
    np.roots: [
        lambda x: parts(np.roots(np.array([2.0, 1.0, 4.0]) * x[0])),
        lambda x: parts(
            np.roots(np.concatenate([[0.0], x[1] - x[1, 0] * np.eye(3)[1] * 3, [0.0, 0.0]]))
        ),
        lambda x: x * np.roots(np.zeros(2) * x[0, :2]).size + x * np.roots(x[0, :1]).size,
    ],
    np.rot90: [np.rot90, lambda x: np.rot90(x, 2), lambda x: np.rot90(x, -1, axes=(1, 0))],
    np.searchsorted: [
        lambda x: x * np.searchsorted([0.5, 1.0], x),
        lambda x: x[0, 0] * np.searchsorted(np.sort(x[0]), B),
    ],
    np.select: [lambda x: np.select([x > 1, x < 0.4], [x**2, 3.0], default=x)],
    np.setdiff1d: [lambda x: np.setdiff1d(x, x[0])],
    np.setxor1d: [lambda x: np.setxor1d(x, np.append(x[0], 9.0))],
    np.sinc: [np.sinc],
    np.sort: [np.sort, lambda x: np.sort(x, axis=None), lambda x: np.sort(x, 0, kind="stable")],
    np.trapezoid: [
        np.trapezoid,
        lambda x: np.trapezoid(x, PLACES),
        lambda x: np.trapezoid(A, x.cumsum(1), axis=1),
        lambda x: np.trapezoid(x, dx=0.5, axis=0),
    ],
    np.sort_complex: [
        lambda x: parts(np.sort_complex(x)),
        lambda x: parts(np.sort_complex(x[::-1] - 1j * x)),
        lambda x: x * np.real(np.sort_complex(np.argsort(x))),
    ],
    np.tril: [np.tril],
    np.tril_indices_from: [lambda x: x[np.tril_indices_from(x)]],
    np.trim_zeros: [lambda x: np.trim_zeros(np.pad(x[0], 2))],
    np.triu: [lambda x: np.triu(x, 1)],
    np.triu_indices_from: [lambda x: x[np.triu_indices_from(x, 1)]],
    np.union1d: [lambda x: np.union1d(x, [0.35, 9.0])],
    np.unique: [
        np.unique,
        lambda x: np.unique(x, return_inverse=True)[1] * x,
        lambda x: np.unique(x, return_index=True, return_counts=True)[2] * x.ravel(),
    ],
    np.unique_all: [lambda x: np.unique_all(x)[0]],
    np.unique_counts: [lambda x: np.unique_counts(x)[0]],
    np.unique_inverse: [lambda x: np.unique_inverse(x)[1] * x],
    np.unique_values: [lambda x: np.sort(np.unique_values(x))],
    np.unpackbits: [
        lambda x: x[0] * np.unpackbits(np.packbits(x > 1), count=3),
        lambda x: x[0, 0] * np.unpackbits(np.packbits(x > 1, axis=0), axis=0, bitorder="little"),
        lambda x: x[0, 0] * np.unpackbits(np.packbits(x > 1), count=11),
        lambda x: x[0, 0] * np.unpackbits(np.packbits(x > 1), count=-2),
    ],
    np.unravel_index: [lambda x: x[np.unravel_index(np.argmax(x), x.shape)]],
    np.unwrap: [lambda x: np.unwrap(x * 9), lambda x: np.unwrap(x * 3, axis=0, period=1.0)],
    np.vander: [lambda x: np.vander(x[0]), lambda x: np.vander(x[0], 2, increasing=True)],
    np.vsplit: [lambda x: np.vsplit(x, 2)[1]],
    np.where: [lambda x: np.where(x > 1, x, 0.5), lambda x: x[np.where(x > 1)]],
    np.fft.fft: [lambda x: parts(np.fft.fft(x)), lambda x: parts(np.fft.fft(x, 2, 1, "ortho"))],
    np.fft.ifft: [lambda x: parts(np.fft.ifft(x, axis=0))],
    np.fft.rfft: [lambda x: parts(np.fft.rfft(x, n=4))],
    np.fft.irfft: [np.fft.irfft, lambda x: np.fft.irfft(x + 1j, n=5, norm="forward")],
    np.fft.hfft: [lambda x: np.fft.hfft(x * (1 + 1j))],
    np.fft.ihfft: [lambda x: parts(np.fft.ihfft(x))],
    np.fft.fftn: [lambda x: parts(np.fft.fftn(x))],
    np.fft.ifftn: [lambda x: parts(np.fft.ifftn(x, s=(4, 2), axes=(0, 1)))],
    np.fft.rfftn: [lambda x: parts(np.fft.rfftn(x, axes=(1, 0)))],
    np.fft.irfftn: [lambda x: np.fft.irfftn(x, axes=(0, 1))],
    np.fft.fft2: [lambda x: parts(np.fft.fft2(x))],
    np.fft.ifft2: [lambda x: parts(np.fft.ifft2(x[None]))],
    np.fft.rfft2: [lambda x: parts(np.fft.rfft2(x))],
    np.fft.irfft2: [np.fft.irfft2],
    np.fft.fftshift: [np.fft.fftshift],
    np.fft.ifftshift: [lambda x: np.fft.ifftshift(x, axes=1)],
}

UFUNCS: list[Any] = [
    lambda x: np.fmax(gaps(x), B),
    lambda x: np.fmin(1.0, gaps(x))[1],
    lambda x: np.fmod(x, -0.4) + np.fmod(-2.7, x),
    lambda x: np.heaviside(x - 1, 0.5) * x,
    lambda x: np.heaviside(x - x[0, 0], x) * x,
    lambda x: np.ldexp(x, np.array([1, -2, 0])),
    lambda x: np.frexp(x)[0] * np.frexp(x)[1],
    lambda x: np.modf(x)[0] * np.modf(-x)[1],
    lambda x: np.float_power(x, 1.5),
    lambda x: np.logaddexp2(x, B),
    lambda x: np.spacing(x) + x,
    lambda x: np.nextafter(x, 2),
    lambda x: np.maximum.accumulate(x),
    lambda x: np.minimum.accumulate(x, axis=1),
    lambda x: np.logaddexp.accumulate(x, axis=1),
    lambda x: np.logaddexp.reduce(x, axis=1),
    lambda x: np.cbrt(x),
]

METHODS: list[Any] = [
    lambda x: x[0, x[0].argsort()],
    lambda x: x.ravel()[x.argsort(None)],
    lambda x: x[0, x[0].argpartition(1)[1]],
    lambda x: x[(x > 1).nonzero()],
    lambda x: x.repeat(2, axis=1),
    lambda x: x * np.sort(x[0]).searchsorted(0.6),
    lambda x: x.to_device(x.device),
    lambda x: x.trace() * x[None].trace(1, 2, 1),
]


def every_call() -> list[Any]:
    return [
        pytest.param(f, id=f"{function.__name__}-{i}")
        for function, calls in CALLS.items()
        for i, f in enumerate(calls)
    ]


def check(f: Any) -> None:
    """That NumPy code is the same traced and plain, and is right under vjp, jvp and vmap."""

    def tame(x: Any) -> Any:
        out = f(x)
        return np.sum(np.where(np.isnan(out), 0.0, out) ** 2)

    narrow = A.astype(np.float32)  # it stays so where NumPy itself widens to float64
    assert fdbr.vjp(f, narrow)[0].dtype in (np.asarray(f(narrow)).dtype, np.float32)
    desired = np.asarray(f(A))
    out, _ = fdbr.vjp(f, A)
    assert_allclose(out, desired, rtol=1e-14, atol=1e-14)
    assert out.dtype == desired.dtype
    assert_allclose(fdbr.jvp(f, (A,), (np.ones_like(A),))[0], desired, rtol=1e-14, atol=1e-14)
    check_grads(tame, A)
    batch = np.stack([A, A * 0.98, A])
    each = np.stack([f(x) for x in batch])
    assert_allclose(fdbr.vmap(f)(batch), each, rtol=1e-14, atol=1e-14)
    derivatives = np.stack([fdbr.grad(tame)(x) for x in batch])
    assert_allclose(fdbr.vmap(fdbr.grad(tame))(batch), derivatives, rtol=1e-12, atol=1e-12)
    assert_allclose(fdbr.grad(lambda b: np.sum(fdbr.vmap(tame)(b)))(batch), derivatives, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("f", every_call())
def test_functions_of_numpy_run_under_every_transformation(f):
    check(f)


@pytest.mark.parametrize("number", range(len(UFUNCS)))
def test_ufuncs_of_numpy_run_under_every_transformation(number):
    check(UFUNCS[number])


@pytest.mark.parametrize("number", range(len(METHODS)))
def test_methods_run_under_every_transformation(number):
    check(METHODS[number])


# --- where derivatives are special ---------------------------------------------------


def test_piecewise_never_runs_a_piece_where_it_is_not_chosen():
    def root(x):
        return np.sum(np.piecewise(x, [x > 0], [np.sqrt, lambda x: -x]))

    np.testing.assert_array_equal(fdbr.grad(root)(np.array([4.0, -1.0])), [0.25, -1.0])


def test_the_derivative_passes_nan_by():
    gradient = fdbr.grad(lambda x: 3 * np.nansum(x) + np.nanmax(x))(np.array([1.0, np.nan, 2.0]))
    np.testing.assert_array_equal(gradient, [3.0, 0.0, 4.0])
