"""Products, decompositions and Fourier transforms."""

from typing import Any

import numpy as np

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]


def _matrix(d: Draw) -> Any:
    return (d.matrix(),)


def _pair(d: Draw) -> Any:
    x = d.matrix()
    return x, d.normal(*x.shape[::-1])


def _vectors(d: Draw) -> Any:
    return d.normal(), d.normal()


def _sides(d: Draw) -> Any:
    rows, columns = d.shape(2)
    return d.normal(rows), d.normal(columns)


def _alike(d: Draw) -> Any:
    return d.matrix(), d.matrix()


def _threes(d: Draw) -> Any:
    return d.normal(max(1, d.count // 3), 3), d.normal(max(1, d.count // 3), 3)


def _layer(d: Draw) -> Any:
    x = d.matrix()
    return x, d.normal(x.shape[1], x.shape[1]), d.normal(x.shape[1])


def _einsum(subscripts: str, draw: Any) -> Program:
    return Program(
        f"einsum/{subscripts}",
        draw,
        lambda o, *x: o.einsum(subscripts, *x),
        lambda t, *x: t.einsum(subscripts, *x),
    )


_PRODUCTS = [
    *same("matmul linalg.matmul:matmul", _pair),
    Program(
        "matmul/by a vector",
        lambda d: (d.matrix(), d.normal(d.shape(2)[1])),
        lambda o, x, y: o.matmul(x, y),
        lambda t, x, y: t.matmul(x, y),
    ),
    Program(
        "matmul/batched",
        lambda d: (d.normal(*d.shape(3)), d.normal(*d.shape(3)[:1], *d.shape(3)[:0:-1])),
        lambda o, x, y: o.matmul(x, y),
        lambda t, x, y: t.matmul(x, y),
    ),
    *same("dot inner", _vectors),
    *same("outer linalg.outer:outer", _sides),
    *same("vecdot:linalg.vecdot linalg.vecdot", _alike),
    Program(
        "tensordot",
        _pair,
        lambda o, x, y: o.tensordot(x, y, axes=1),
        lambda t, x, y: t.tensordot(x, y, dims=1),
    ),
    Program(
        "linalg.tensordot",
        _pair,
        lambda o, x, y: o.linalg.tensordot(x, y, axes=1),
        lambda t, x, y: t.tensordot(x, y, dims=1),
    ),
    *same("linear:nn.functional.linear", _layer),
    _einsum("ij,jk->ik", _pair),
    _einsum("ij,ji->", _pair),
    _einsum("ij,ij->i", _alike),
    _einsum("i,j->ij", _sides),
    _einsum("ij->ji", _matrix),
    *same("linalg.cross", _threes),
    Program(
        "linalg.kron",
        lambda d: (d.normal(*d.shape(4)[:2]), d.normal(*d.shape(4)[2:])),
        lambda o, x, y: o.linalg.kron(x, y),
        lambda t, x, y: t.kron(x, y),
    ),
    Program(
        "linalg.multi_dot",
        lambda d: (*_pair(d), d.matrix()),
        lambda o, *x: o.linalg.multi_dot(x),
        lambda t, *x: t.linalg.multi_dot(x),
    ),
    Program(
        "linalg.matrix_transpose",
        _matrix,
        lambda o, x: o.linalg.matrix_transpose(x),
        lambda t, x: x.mT,
    ),
]


# --- decompositions -----------------------------------------------------------------


def _squares(d: Draw) -> Any:
    return (d.squares(),)


def _positive_definite(d: Draw) -> Any:
    return (d.positive_definite(),)


def _equation(d: Draw) -> Any:
    x = d.squares()
    return x, d.normal(*x.shape)


def _many_small(d: Draw) -> Any:
    count = max(1, d.count // 16)
    eyes = 3 * np.eye(4, dtype=np.float32)
    return d.normal(count, 4, 4) / np.float32(2) + eyes, d.normal(count, 4, 1)


def _triangular(d: Draw) -> Any:
    x = d.squares()
    return np.tril(x), d.normal(*x.shape)


def _tall(d: Draw) -> Any:
    x = d.squares()
    return np.concatenate([x, x[..., ::-1, :]], axis=-2) + d.normal(1), d.normal(
        x.shape[0], 2 * x.shape[1], 1
    )


def _eigenvectors(values: Any, vectors: Any) -> Any:
    return values, vectors * vectors  # what does not depend on their signs


_DECOMPOSITIONS = [
    *same("linalg.inv linalg.matrix_norm", _squares),
    *same("linalg.det", lambda d: (d.squares() / 3,)),  # which does not overflow
    *same("linalg.solve", _equation),
    Program(
        "linalg.solve/many small",
        _many_small,
        lambda o, a, b: o.linalg.solve(a, b),
        lambda t, a, b: t.linalg.solve(a, b),
    ),
    Program(
        "linalg.solve_triangular",
        _triangular,
        lambda o, a, b: o.linalg.solve_triangular(a, b, lower=True),
        lambda t, a, b: t.linalg.solve_triangular(a.tril(), b, upper=False),
    ),
    Program(
        "linalg.slogdet",
        _squares,
        lambda o, x: o.linalg.slogdet(x)[1],
        lambda t, x: t.linalg.slogdet(x)[1],
    ),
    *same("linalg.cholesky", _positive_definite),
    Program(
        "linalg.eigh",
        _positive_definite,
        lambda o, x: _eigenvectors(*o.linalg.eigh(x)),
        lambda t, x: _eigenvectors(*t.linalg.eigh(x)),
    ),
    *same("linalg.eigvalsh linalg.svdvals", _positive_definite),
    Program(
        "linalg.svd",
        _positive_definite,
        lambda o, x: _eigenvectors(*o.linalg.svd(x, full_matrices=False)[1::-1]),
        lambda t, x: _eigenvectors(*t.linalg.svd(x, full_matrices=False)[1::-1]),
    ),
    Program(
        "linalg.eig",
        _positive_definite,
        lambda o, x: o.linalg.eig(x)[0],
        lambda t, x: t.linalg.eig(x)[0],
        gradient=False,  # of complex results, by another convention
        alike=False,  # their order is not determined
    ),
    *same("linalg.eigvals", _positive_definite, gradient=False, alike=False),
    Program(
        "linalg.qr",
        _squares,
        lambda o, x: _eigenvectors(*(part * part for part in o.linalg.qr(x))),
        lambda t, x: _eigenvectors(*(part * part for part in t.linalg.qr(x))),
    ),
    *same("linalg.pinv", _squares),
    *same("linalg.matrix_rank", _squares, gradient=False),
    Program(
        "linalg.lstsq",
        _tall,
        lambda o, a, b: o.linalg.lstsq(a[0], b[0])[0],
        lambda t, a, b: t.linalg.lstsq(a[0], b[0])[0],
    ),
    Program(
        "linalg.expm",
        _squares,
        lambda o, x: o.linalg.expm(x / 8),
        lambda t, x: t.linalg.matrix_exp(x / 8),
    ),
    Program(
        "linalg.matrix_power",
        _squares,
        lambda o, x: o.linalg.matrix_power(x, 3),
        lambda t, x: t.linalg.matrix_power(x, 3),
    ),
    *same("linalg.vector_norm", lambda d: (d.normal(),)),
    Program("linalg.norm", _matrix, lambda o, x: o.linalg.norm(x), lambda t, x: t.linalg.norm(x)),
    Program("linalg.trace", _matrix, lambda o, x: o.linalg.trace(x), lambda t, x: t.trace(x)),
]

# --- Fourier transforms -------------------------------------------------------------

_FOURIER = [
    *same("fft.rfft fft.ihfft fft.rfftn", _matrix),
    *same(
        "fft.fft fft.ifft fft.irfft fft.hfft fft.fftn fft.ifftn fft.irfftn",
        lambda d: (d.complex(*d.shape(2)),),
    ),
]

PROGRAMS = [*_PRODUCTS, *_DECOMPOSITIONS, *_FOURIER]
