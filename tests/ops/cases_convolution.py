"""Cases of what is kin to convolutions, by the sums that define them."""

import itertools
from typing import Any

import numpy as np

from fdbr import ops
from ops.cases import ANY, OFF_INTEGERS, POSITIVE, arrays, case
from ops.cases_networks import _pairs, _per_axis, correlated, places
from ops.seeds import several


def geometry(size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """The settings for each axis, and the numbers of windows."""
    rank = len(kernel)
    stride, dilation = _per_axis(stride, rank), _per_axis(dilation, rank)
    padding = _pairs(padding, rank)
    counts = [
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, padding, dilation, kernel, stride, strict=True)
    ]
    return padding, stride, dilation, counts, kernel


def inside(element: Any, size: Any) -> bool:
    return all(0 <= i < n for i, n in zip(element, size, strict=True))


# --- windows ------------------------------------------------------------------------


def columns(x: Any, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Any:
    """``(*lead, C, *kernel, *counts)``, one element after the other."""
    rank = len(kernel)
    size = x.shape[x.ndim - rank :]
    settings = geometry(size, kernel, stride, padding, dilation)
    out = np.zeros((*x.shape[: x.ndim - rank], *kernel, *settings[3]))
    for window, position, element in places(*settings):
        if inside(element, size):
            out[(..., *position, *window)] = x[(..., *element)]
    return out


def unfolded(x: Any, kernel: Any, **settings: Any) -> Any:
    out = columns(x, kernel, **settings)
    rank = len(kernel)
    lead = out.shape[: out.ndim - 2 * rank]
    windows = int(np.prod(out.shape[out.ndim - rank :]))
    return out.reshape((*lead[:-1], lead[-1] * int(np.prod(kernel)), windows))


def folded(x: Any, size: Any, kernel: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1):
    settings = geometry(size, kernel, stride, padding, dilation)
    channels = x.shape[-2] // int(np.prod(kernel))
    x = x.reshape((*x.shape[:-2], channels, *kernel, *settings[3]))
    out = np.zeros((*x.shape[: x.ndim - 2 * len(kernel)], *size))
    for window, position, element in places(*settings):
        if inside(element, size):
            out[(..., *element)] += x[(..., *position, *window)]
    return out


for setting, x, kernel, params in (
    ("", (1, 2, 4), (2,), {}),
    ("settings", (2, 3, 2), (2, 1), {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)}),
):
    case(
        "unfold",
        several(x),
        lambda x, k=kernel, p=params: unfolded(x, k, **p),
        lambda x, k=kernel, p=params: ops.unfold(x, k, **p),
        setting,
    )
case(
    "unfold",
    several((1, 2, 3, 2)),
    lambda x: columns(x, (2, 2), stride=2, padding=((0, 1), (0, 0))).reshape(1, 8, 2, 1),
    lambda x: ops.unfold(x, 2, stride=2, cover_all=True, flatten=False),
    "as Chainer does",
)
for setting, x, size, kernel, params in (
    ("", (1, 2, 3), (4,), (2,), {}),
    ("settings", (2, 3), (3, 2), (2, 1), {"stride": (1, 2), "padding": (1, 0), "dilation": (2, 1)}),
    ("integers", (4, 2), (2, 2), (2, 2), {"padding": ((0, 1), (0, 0))}),
):
    plain = (2, 2) if setting == "integers" else (size, kernel)
    case(
        "fold",
        several(x),
        lambda x, n=size, k=kernel, p=params: folded(x, n, k, **p),
        lambda x, s=plain, p=params: ops.fold(x, *s, **p),
        setting,
    )

# --- weights of one window, of one channel, and of none -----------------------------


def local(x: Any, w: Any, b: Any = 0.0, **settings: Any) -> Any:
    rank = w.ndim // 2 - 1
    found = columns(x, w.shape[rank + 2 :], **settings)
    out = np.zeros((x.shape[0], *w.shape[: rank + 1]))
    for window in itertools.product(*map(range, w.shape[1 : rank + 1])):
        part = found[(..., *window)].reshape(x.shape[0], -1)
        out[(..., *window)] = part @ w[(slice(None), *window)].reshape(w.shape[0], -1).T
    return out + b


for setting, x, w, params in (
    ("", (2, 1, 3), (2, 2, 1, 2), {}),
    ("settings", (1, 2, 2, 3), (1, 1, 3, 2, 1, 2), {"stride": (2, 1), "padding": ((0, 0), (1, 0))}),
):
    rank = len(w) // 2 - 1
    case(
        "local_conv",
        several(x, w, w[: rank + 1]),
        lambda x, w, b, p=params: local(x, w, b, **p),
        lambda x, w, b, p=params: ops.local_conv(x, w, b, **p),
        setting,
    )
case(
    "local_conv",
    several((2, 2), (1, 1, 2, 2)),
    lambda x, w: local(x[None], w)[0],
    ops.local_conv,
    "one example",
)
case(
    "depthwise_conv",
    several((1, 2, 3), (4, 1, 2), (4,)),
    lambda x, w, b: correlated(x, w, b, padding=((1, 0),), groups=2),
    lambda x, w, b: ops.depthwise_conv(x, w, b, padding=((1, 0),)),
)
case(
    "depthwise_conv",
    several((2, 1, 3, 2), (1, 1, 2, 1)),
    lambda x, w: correlated(x, w, stride=(2, 1), padding=((0, 1), (0, 0))),
    lambda x, w: ops.depthwise_conv(x, w, stride=(2, 1), cover_all=True),
    "covering all",
)


def shifted(x: Any, kernel: Any, dilation: Any) -> Any:
    """As a depthwise convolution; the last position takes the place of the centre."""
    positions = list(itertools.product(*map(range, kernel)))
    centre = len(positions) // 2
    positions[centre], positions[-1] = positions[-1], positions[centre]
    weight = np.zeros((x.shape[1], 1, *kernel))
    for channel in range(x.shape[1]):
        position = positions[min(channel // (x.shape[1] // len(positions)), len(positions) - 1)]
        weight[(channel, 0, *(k - 1 - p for k, p in zip(kernel, position, strict=True)))] = 1
    padding = tuple(k // 2 * d for k, d in zip(kernel, dilation, strict=True))
    return correlated(x, weight, padding=padding, dilation=dilation, groups=x.shape[1])


case("shift", several((1, 7, 2)), lambda x: shifted(x, (3,), (1,)))
case(
    "shift",
    several((1, 3, 2, 3)),
    lambda x: shifted(x, (1, 3), (1, 2)),
    lambda x: ops.shift(x, (1, 3), dilation=(1, 2)),
    "two dimensions",
)

# --- deformed windows ---------------------------------------------------------------


def between(x: Any, place: Any) -> float:
    """The value of an array between its elements, with zeros around it."""
    total = 0.0
    for element in itertools.product(*(range(n) for n in x.shape)):
        near = [max(0.0, 1 - abs(p - e)) for p, e in zip(place, element, strict=True)]
        total += x[element] * np.prod(near)
    return total


def deformed(x: Any, offset: Any, w: Any, b: Any = None, mask: Any = None, **settings: Any) -> Any:
    kernel, rank = w.shape[2:], w.ndim - 2
    padding, stride, dilation, counts, _ = geometry(
        x.shape[2:],
        kernel,
        settings.get("stride", 1),
        settings.get("padding", 0),
        settings.get("dilation", 1),
    )
    parts = x.shape[1] // w.shape[1]
    groups = offset.shape[1] // (rank * int(np.prod(kernel)))
    offset = offset.reshape((len(x), groups, *kernel, rank, *counts))
    mask = None if mask is None else mask.reshape((len(x), groups, *kernel, *counts))
    out = np.zeros((len(x), w.shape[0], *counts))
    for n, o, c in itertools.product(range(len(x)), range(w.shape[0]), range(w.shape[1])):
        channel = o // (w.shape[0] // parts) * w.shape[1] + c
        group = channel // (x.shape[1] // groups)
        for window, position, place in places(padding, stride, dilation, counts, kernel):
            steps = offset[(n, group, *position, slice(None), *window)]
            share = 1.0 if mask is None else mask[(n, group, *position, *window)]
            value = between(x[n, channel], [p + s for p, s in zip(place, steps, strict=True)])
            out[(n, o, *window)] += w[(o, c, *position)] * share * value
    return out if b is None else out + np.reshape(b, (-1, *(1,) * rank))


case(
    "deform_conv",
    arrays(((1, 2, 3), ANY), ((1, 2, 2), OFF_INTEGERS), ((1, 2, 2), ANY), ((1,), ANY)),
    deformed,
)
case(
    "deform_conv",
    arrays(((1, 2, 3), ANY), ((1, 4, 2), OFF_INTEGERS), ((2, 1, 2), ANY), ((1, 4, 2), POSITIVE)),
    lambda x, o, w, m: deformed(x, o, w, None, m, stride=2, padding=1),
    lambda x, o, w, m: ops.deform_conv(x, o, w, stride=2, padding=1, mask=m),
    "groups and a mask",
)
case(
    "deform_conv",
    arrays(((1, 2, 2), ANY), ((4, 2, 1), OFF_INTEGERS), ((1, 1, 1, 2), ANY)),
    lambda x, o, w: deformed(x[None], o[None, [2, 0, 3, 1]], w)[0],
    lambda x, o, w: ops.deform_conv(x, o, w, planar=True),
    "one image, laid out as in Chainer",
)
