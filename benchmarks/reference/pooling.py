"""Pooling, unpooling, interpolation, and sampling at places between elements."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

Parts = dict[str, Any]


def cases() -> Iterator[tuple[str, Parts]]:
    """The calls, as JSON, and for each what it gives and its gradients, one after the other.

    A call is the name in `fdbr.ops`, the shapes of the inputs, and the settings.  Inputs and
    cotangents are sines, which the test makes too.
    """
    calls = []
    for number, (op, theirs, shapes, settings) in enumerate((*_pooling(), *_resampling())):
        calls.append([op, shapes, settings])
        yield f"{number}", {"values": _values(op, theirs, shapes, settings)}
    yield "all", {"calls": json.dumps(calls)}


def sines(shape: Any, seed: int) -> Any:
    """Numbers between -1 and 1, all different."""
    return np.sin(1.7 * np.arange(math.prod(shape)) + seed).reshape(shape)


def _values(op: str, theirs: Callable[..., Any], shapes: Any, settings: Parts) -> Any:
    inputs = [
        torch.tensor(sines(shape, i + 1), requires_grad=True) for i, shape in enumerate(shapes)
    ]
    given = [1 + x for x in inputs] if op == "lp_pool" else inputs
    found = theirs(*given, **settings)
    found, *indices = found if isinstance(found, tuple) else (found,)
    derivatives = torch.autograd.grad(found, inputs, torch.tensor(sines(found.shape, 0)))
    return np.concatenate(
        [part.detach().numpy().ravel() for part in (found, *derivatives, *indices)]
    )


def _pooling() -> Iterator[tuple[str, Any, Any, Parts]]:
    line, plane, space = [(1, 2, 7)], [(1, 2, 5, 4)], [(1, 1, 4, 3, 4)]
    indices = {"return_indices": True}
    yield "max_pool", F.max_pool1d, line, {"kernel_size": 3, "stride": 2, "padding": 1}
    yield "max_pool", F.max_pool1d, line, {"kernel_size": 2, "ceil_mode": True, **indices}
    yield "max_pool", F.max_pool2d, plane, {"kernel_size": 2, "dilation": [2, 1], **indices}
    yield (
        "max_pool",
        F.max_pool2d,
        plane,
        {
            "kernel_size": [3, 2],
            "stride": 2,
            "padding": [1, 0],
            "ceil_mode": True,
            **indices,
        },
    )
    yield "max_pool", F.max_pool3d, space, {"kernel_size": 2, "stride": 1, **indices}
    counted = {"kernel_size": 3, "stride": 2, "padding": 1}
    yield "avg_pool", F.avg_pool1d, line, {**counted, "ceil_mode": True}
    for more in ({}, {"ceil_mode": True, "count_include_pad": False}, {"divisor_override": 5}):
        yield "avg_pool", F.avg_pool2d, plane, {**counted, **more}
    yield "avg_pool", F.avg_pool3d, space, {"kernel_size": [2, 1, 3], "stride": 2}
    yield "adaptive_avg_pool", F.adaptive_avg_pool2d, plane, {"output_size": [3, 3]}
    yield "adaptive_max_pool", F.adaptive_max_pool2d, plane, {"output_size": [3, 3], **indices}
    yield "adaptive_max_pool", F.adaptive_max_pool1d, line, {"output_size": 3}
    yield "lp_pool", F.lp_pool1d, line, {"norm_type": 3.0, "kernel_size": 3}
    yield "lp_pool", F.lp_pool2d, plane, {"norm_type": 2, "kernel_size": 2, "ceil_mode": True}


def _resampling() -> Iterator[tuple[str, Any, Any, Parts]]:
    line, plane, space = [(1, 2, 4)], [(1, 1, 4, 3)], [(1, 1, 2, 3, 2)]
    for mode in ("nearest", "nearest-exact", "area"):
        yield "interpolate", F.interpolate, plane, {"scale_factor": 1.7, "mode": mode}
    for corners in (False, True):
        smooth = {"align_corners": corners}
        yield "interpolate", F.interpolate, line, {"size": 7, "mode": "linear", **smooth}
        yield "interpolate", F.interpolate, space, {"size": 3, "mode": "trilinear", **smooth}
        for mode in ("bilinear", "bicubic"):
            yield "interpolate", F.interpolate, plane, {"size": [5, 2], "mode": mode, **smooth}
            smaller = {"scale_factor": 0.7, "antialias": True}
            yield "interpolate", F.interpolate, plane, {**smaller, "mode": mode, **smooth}
    again = {"scale_factor": 1.6, "recompute_scale_factor": True}
    yield "interpolate", F.interpolate, plane, {**again, "mode": "bilinear"}
    for corners in (False, True):
        for padding in ("zeros", "border", "reflection"):
            how = {"padding_mode": padding, "align_corners": corners}
            for mode in ("bilinear", "nearest", "bicubic"):
                shapes = [(1, 2, 3, 2), (1, 2, 2, 2)]
                yield "grid_sample", F.grid_sample, shapes, {"mode": mode, **how}
            cubes = [(1, 1, 2, 3, 2), (1, 1, 2, 2, 3)]
            yield "grid_sample", F.grid_sample, cubes, {"mode": "bilinear", **how}
        turned = {"align_corners": corners}
        yield "affine_grid", F.affine_grid, [(1, 2, 3)], {"size": [1, 1, 3, 2], **turned}
        yield "affine_grid", F.affine_grid, [(1, 3, 4)], {"size": [1, 1, 2, 1, 2], **turned}
    yield "pixel_shuffle", F.pixel_shuffle, [(1, 8, 2, 1)], {"upscale_factor": 2}
    yield "pixel_unshuffle", F.pixel_unshuffle, [(1, 2, 4, 2)], {"downscale_factor": 2}
    yield "channel_shuffle", F.channel_shuffle, [(1, 6, 2)], {"groups": 3}
    yield "max_unpool", _unpool, [(1, 2, 2, 2)], {"kernel_size": 2, "output_size": [5, 4]}


def _unpool(x: Any, **settings: Any) -> Any:
    places = torch.arange(x.numel()).reshape(x.shape) * 2
    return F.max_unpool2d(x, places, **settings)
