"""What makes, arranges, picks and orders arrays."""

from typing import Any

import numpy as np

from benchmarks.operations.program import Draw, Program, same

__all__ = ["PROGRAMS"]


def _normal(d: Draw) -> Any:
    return (d.normal(),)


def _matrix(d: Draw) -> Any:
    return (d.matrix(),)


def _two_matrices(d: Draw) -> Any:
    return d.matrix(), d.matrix()


# --- new ones -----------------------------------------------------------------------


def _made(name: str, ours: Any, theirs: Any, **more: Any) -> Program:
    return Program(name, _matrix, ours, theirs, gradient=False, **more)


_NEW = [
    *(
        _made(
            name,
            lambda o, x, name=name: getattr(o, name)(x.shape, dtype="float32"),
            lambda t, x, name=name: getattr(t, name)(x.shape),
            alike=name != "empty",
        )
        for name in ("zeros", "ones", "empty")
    ),
    *same("zeros_like ones_like", _matrix, gradient=False),
    *same("empty_like", _matrix, gradient=False, alike=False),
    _made("full", lambda o, x: o.full(x.shape, 2.5), lambda t, x: t.full(x.shape, 2.5).double()),
    _made("full_like", lambda o, x: o.full_like(x, 2.5), lambda t, x: t.full_like(x, 2.5)),
    _made("arange", lambda o, x: o.arange(x.size), lambda t, x: t.arange(x.numel())),
    _made(
        "linspace",
        lambda o, x: o.linspace(0, 1, x.size),
        lambda t, x: t.linspace(0, 1, x.numel(), dtype=t.float64),
    ),
    _made(
        "eye",
        lambda o, x: o.eye(*x.shape, dtype="float32"),
        lambda t, x: t.eye(*x.shape),
    ),
    _made(
        "fft.fftfreq", lambda o, x: o.fft.fftfreq(x.size), lambda t, x: _frequencies(t, "fft", x)
    ),
    _made(
        "fft.rfftfreq", lambda o, x: o.fft.rfftfreq(x.size), lambda t, x: _frequencies(t, "rfft", x)
    ),
    _made("asarray", lambda o, x: o.asarray(x), lambda t, x: t.asarray(x)),
]


def _frequencies(torch: Any, kind: str, x: Any) -> Any:
    return getattr(torch.fft, f"{kind}freq")(x.numel(), dtype=torch.float64)


# --- other arrangements -------------------------------------------------------------

_ARRANGED = [
    Program("reshape", _matrix, lambda o, x: o.reshape(x, (-1,)), lambda t, x: t.reshape(x, (-1,))),
    Program(
        "broadcast_to",
        lambda d: (d.normal(d.shape(2)[1]), d.integers(0, 2, *d.shape(2))),
        lambda o, x, like: o.broadcast_to(x, like.shape),
        lambda t, x, like: t.broadcast_to(x, like.shape),
    ),
    *same("broadcast_arrays:broadcast_tensors", lambda d: (d.matrix(), d.normal(d.shape(2)[1]))),
    Program(
        "meshgrid",
        lambda d: (d.normal(d.shape(2)[0]), d.normal(d.shape(2)[1])),
        lambda o, x, y: o.meshgrid(x, y, indexing="ij"),
        lambda t, x, y: t.meshgrid(x, y, indexing="ij"),
    ),
    Program(
        "concat", _two_matrices, lambda o, x, y: o.concat([x, y]), lambda t, x, y: t.cat([x, y])
    ),
    Program(
        "concat/axis -1",
        _two_matrices,
        lambda o, x, y: o.concat([x, y], axis=-1),
        lambda t, x, y: t.cat([x, y], dim=-1),
    ),
    Program(
        "stack", _two_matrices, lambda o, x, y: o.stack([x, y]), lambda t, x, y: t.stack([x, y])
    ),
    Program(
        "split",
        lambda d: (d.normal(2 * d.count),),
        lambda o, x: o.split(x, 2)[1],
        lambda t, x: t.tensor_split(x, 2)[1],
    ),
    Program(
        "as_strided",
        lambda d: (d.normal(d.count + 1),),
        lambda o, x: o.as_strided(x, (len(x) // 2, 3), (2, 1)),
        lambda t, x: t.as_strided(x, (len(x) // 2, 3), (2, 1)),
    ),
    Program(
        "sum_to",
        _matrix,
        lambda o, x: o.sum_to(x, x.shape[1:]),
        lambda t, x: x.sum_to_size(x.shape[1:]),
    ),
    Program("unstack", _matrix, lambda o, x: o.unstack(x)[:4], lambda t, x: t.unbind(x)[:4]),
    Program(
        "expand_dims",
        _matrix,
        lambda o, x: o.expand_dims(x, axis=1),
        lambda t, x: t.unsqueeze(x, 1),
    ),
    Program(
        "squeeze",
        lambda d: (d.normal(d.count, 1),),
        lambda o, x: o.squeeze(x, axis=1),
        lambda t, x: t.squeeze(x, 1),
    ),
    Program("flip", _matrix, lambda o, x: o.flip(x, axis=-1), lambda t, x: t.flip(x, (-1,))),
    Program("roll", _matrix, lambda o, x: o.roll(x, 1, axis=-1), lambda t, x: t.roll(x, 1, -1)),
    Program(
        "permute_dims",
        lambda d: (d.images(),),
        lambda o, x: o.permute_dims(x, (0, 2, 3, 1)),
        lambda t, x: t.permute(x, (0, 2, 3, 1)),
    ),
    Program("matrix_transpose", _matrix, lambda o, x: o.matrix_transpose(x), lambda t, x: x.mT),
    *(
        Program(
            name,
            _matrix,
            lambda o, x, name=name: getattr(o, name)(x, 0, 1),
            lambda t, x, name=name: getattr(t, name)(x, 0, 1),
        )
        for name in ("moveaxis", "swapaxes")
    ),
    Program("tile", _matrix, lambda o, x: o.tile(x, (2, 1)), lambda t, x: t.tile(x, (2, 1))),
    Program(
        "repeat",
        _matrix,
        lambda o, x: o.repeat(x, 2, axis=0),
        lambda t, x: t.repeat_interleave(x, 2, dim=0),
    ),
    *same("tril triu", _matrix),
    *same("diagonal:diagonal linalg.diagonal:diagonal", _matrix),
    Program(
        "pad",
        _matrix,
        lambda o, x: o.pad(x, 1),
        lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    ),
    Program("diff", _matrix, lambda o, x: o.diff(x), lambda t, x: t.diff(x)),
    Program(
        "fft.fftshift", _matrix, lambda o, x: o.fft.fftshift(x), lambda t, x: t.fft.fftshift(x)
    ),
    Program(
        "fft.ifftshift", _matrix, lambda o, x: o.fft.ifftshift(x), lambda t, x: t.fft.ifftshift(x)
    ),
]

# --- parts --------------------------------------------------------------------------


def _rows(d: Draw) -> Any:
    x = d.matrix()
    return x, d.integers(0, len(x), len(x))


def _places(d: Draw) -> Any:
    x = d.matrix()
    return x, d.integers(0, x.shape[1], *x.shape)


def _columns(d: Draw) -> Any:
    x = d.matrix()
    return x, np.argsort(d.matrix(), axis=-1)


def _added_at_rows(torch: Any, x: Any, i: Any, y: Any) -> Any:
    return torch.index_add(x, 0, i, y)


_PARTS = [
    Program(
        "take", _rows, lambda o, x, i: o.take(x, i, axis=0), lambda t, x, i: x.index_select(0, i)
    ),
    Program(
        "take/columns",
        lambda d: (d.matrix(), d.integers(0, d.shape(2)[1], d.shape(2)[1])),
        lambda o, x, i: o.take(x, i, axis=1),
        lambda t, x, i: x.index_select(1, i),
    ),
    Program("getitem/rows", _rows, lambda o, x, i: x[i], lambda t, x, i: x[i]),
    Program("getitem/slice", _matrix, lambda o, x: x[1:, ::2], lambda t, x: x[1:, ::2]),
    Program("getitem/row", _matrix, lambda o, x: x[1], lambda t, x: x[1]),
    Program(
        "getitem/mask",
        lambda d: (d.matrix(), d.truths(*d.shape(2))),
        lambda o, x, m: x[m],
        lambda t, x, m: x[m],
    ),
    Program(
        "take_along_axis",
        _places,
        lambda o, x, i: o.take_along_axis(x, i, axis=-1),
        lambda t, x, i: t.take_along_dim(x, i, dim=-1),
    ),
    Program(
        "gather", _places, lambda o, x, i: o.gather(x, 1, i), lambda t, x, i: t.gather(x, 1, i)
    ),
    Program(
        "scatter",
        lambda d: (*_columns(d), d.matrix()),
        lambda o, x, i, y: o.scatter(x, 1, i, y),
        lambda t, x, i, y: t.scatter(x, 1, i, y),
    ),
    Program(
        "at/set",
        lambda d: (d.matrix(), d.normal(d.shape(2)[1])),
        lambda o, x, y: o.at(x)[1].set(y),
        lambda t, x, y: t.select_scatter(x, y, 0, 1),
    ),
    Program(
        "at/add",
        lambda d: (*_rows(d), d.matrix()),
        lambda o, x, i, y: o.at(x)[i].add(y),
        _added_at_rows,
    ),
    Program(
        "segment_sum",
        lambda d: (d.matrix(), d.integers(0, 2, d.shape(2)[0])),
        lambda o, x, i: o.segment_sum(x, i, 2),
        lambda t, x, i: t.zeros(2, x.shape[1]).index_add(0, i, x),
    ),
    Program(
        "segment_max",
        lambda d: (d.matrix(), d.integers(0, 2, d.shape(2)[0])),
        lambda o, x, i: o.segment_max(x, i, 2),
        lambda t, x, i: t.zeros(2, x.shape[1]).index_reduce(0, i, x, "amax", include_self=False),
    ),
    Program(
        "segment_min",
        lambda d: (d.matrix(), d.integers(0, 2, d.shape(2)[0])),
        lambda o, x, i: o.segment_min(x, i, 2),
        lambda t, x, i: t.zeros(2, x.shape[1]).index_reduce(0, i, x, "amin", include_self=False),
    ),
    Program(
        "nonzero",
        lambda d: (d.truths(*d.shape(2)),),
        lambda o, x: o.nonzero(x),
        lambda t, x: t.nonzero(x, as_tuple=True),
        gradient=False,
    ),
]

# --- orders -------------------------------------------------------------------------

_ORDERED = [
    Program("sort", _normal, lambda o, x: o.sort(x), lambda t, x: t.sort(x).values),
    Program("sort/rows", _matrix, lambda o, x: o.sort(x), lambda t, x: t.sort(x).values),
    Program(
        "argsort", _matrix, lambda o, x: o.argsort(x), lambda t, x: t.argsort(x), gradient=False
    ),
    Program("top_k", _matrix, lambda o, x: o.top_k(x, 2)[0], lambda t, x: t.topk(x, 2).values),
    Program(
        "searchsorted",
        lambda d: (np.sort(d.normal()), d.normal()),
        lambda o, x, y: o.searchsorted(x, y),
        lambda t, x, y: t.searchsorted(x, y),
        gradient=False,
    ),
    Program(
        "isin",
        lambda d: (d.integers(0, d.count), d.integers(0, d.count, 8)),
        lambda o, x, y: o.isin(x, y),
        lambda t, x, y: t.isin(x, y),
        gradient=False,
    ),
    Program(
        "unique_values",
        lambda d: (d.integers(0, d.count),),
        lambda o, x: o.unique_values(x),
        lambda t, x: t.unique(x),
        gradient=False,
    ),
    Program(
        "unique_counts",
        lambda d: (d.integers(0, d.count),),
        lambda o, x: o.unique_counts(x),
        lambda t, x: t.unique(x, return_counts=True),
        gradient=False,
    ),
    Program(
        "unique_inverse",
        lambda d: (d.integers(0, d.count),),
        lambda o, x: o.unique_inverse(x),
        lambda t, x: t.unique(x, return_inverse=True),
        gradient=False,
    ),
]

PROGRAMS = [*_NEW, *_ARRANGED, *_PARTS, *_ORDERED]
