"""Convolutions in any number of dimensions.

``sum(y[n, o, p] * weight[o, c, k] * x[n, c, p * stride - padding + k * dilation])`` is linear in
each of ``x``, ``weight`` and ``y``.  Its derivatives are three primitives: `_conv` in ``y``,
`_conv_input` in ``x``, `_conv_kernel` in ``weight``.  The transposes of each are the other two, so
derivatives of all orders are convolutions again.
"""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import fit, multilinear, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.unbroadcast import accumulate
from fdbr.ops.dtypes import in_bias_dtype
from fdbr.ops.nn.convolution import im2col
from fdbr.ops.nn.windows import Geometry, Sizes, check_spatial, check_windows, geometry_of, per_axis
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.typing import Array, ArrayLike, Padding

__all__ = ["conv", "conv_transpose"]


# --- batches ------------------------------------------------------------------------


def _fold(value: Any, axis: int, groups: int = 1) -> Any:
    """Merge the batch axis into an axis of the examples, within each of its groups."""
    size, *shape = value.shape
    shape[axis : axis + 1] = [groups, shape[axis] // groups]
    value = moveaxis(reshape(value, (size, *shape)), 0, axis + 1)
    return reshape(value, (*shape[:axis], groups * size * shape[axis + 1], *shape[axis + 2 :]))


def _unfold(value: Any, axis: int, size: int, groups: int = 1) -> Any:
    """Undo `_fold`."""
    shape = list(value.shape)
    own = shape[axis] // (groups * size)
    split = (*shape[:axis], groups, size, own, *shape[axis + 1 :])
    value = moveaxis(reshape(value, split), axis + 1, 0)
    return reshape(value, (size, *shape[:axis], groups * own, *shape[axis + 1 :]))


def _batch_of_none(rule: Any, apply: Any, values: Any, batched: Any, params: Any) -> Any:
    """Apply a rule to an empty batch: compute a batch of one to find the shape, and drop it."""
    ones_batched = [
        array_module(value).zeros((1, *value.shape[1:]), dtype=value.dtype) if own else value
        for value, own in zip(values, batched, strict=True)
    ]
    return rule(apply, ones_batched, batched, 1, params)[:0]


def _batch(channels: Any, first: Any, second: Any) -> Any:
    """Make the batching rule of a product of two operands.

    If only one operand is batched, the batch is merged into one of its axes: ``first`` and
    ``second`` give that axis, the corresponding axis of the result, and for both whether it is
    divided into groups.  If both are batched, the examples become groups: ``channels`` are the
    channel axes of the two operands and of the result.
    """

    def batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
        if not size:
            return _batch_of_none(batch, apply, values, batched, params)
        x, y = values
        groups = params["groups"]
        if all(batched):
            x, y = _fold(x, channels[0]), _fold(y, channels[1])
            out = apply(x, y, **{**params, "groups": size * groups})
            return _unfold(out, channels[2], size)
        axis, out_axis, is_grouped, out_is_grouped = first if batched[0] else second
        if batched[0]:
            x = _fold(x, axis, groups if is_grouped else 1)
        else:
            y = _fold(y, axis, groups if is_grouped else 1)
        return _unfold(apply(x, y, **params), out_axis, size, groups if out_is_grouped else 1)

    return batch


def _batch_with_bias(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    if not size:
        return _batch_of_none(_batch_with_bias, apply, values, batched, params)
    x, weight, bias = values
    if batched == [True, False, False]:
        return _unfold(apply(_fold(x, 0), weight, bias, **params), 0, size)
    out = _conv(x, weight, **params) if not any(batched[:2]) else None
    if out is None:
        batch: Any = _conv.primitive.batch
        out = batch(_conv, (x, weight), batched[:2], size, params)
    ones = (1,) * (weight.ndim - batched[1] - 2)
    bias = reshape(bias, (*bias.shape[:-1], *(1,) * batched[2], bias.shape[-1], *ones))
    return spread(out + bias, any(batched), size)


# --- the three products -------------------------------------------------------------


def _input_cotangent(
    ct: Any, weight: Any, shape: Any, dtype: Any, geometry: Geometry, groups: int
) -> Any:
    out = _conv_input(ct, weight, geometry=geometry, groups=groups, size=tuple(shape[2:]))
    return fit(out, (shape, dtype))


def _kernel_cotangent(
    ct: Any, x: Any, shape: Any, dtype: Any, geometry: Geometry, groups: int
) -> Any:
    return fit(_conv_kernel(x, ct, geometry=geometry, groups=groups), (shape, dtype))


@multilinear(
    x=_input_cotangent,
    weight=_kernel_cotangent,
    batch=_batch((1, 0, 1), (0, 0, False, False), (0, 1, True, True)),
)
def _conv(xp: Any, x: ArrayLike, weight: ArrayLike, *, geometry: Geometry, groups: int) -> Array:
    return im2col.correlate(xp, x, weight, None, geometry, groups)


def _along_channels(bias: Any, rank: int) -> Any:
    return reshape(bias, (bias.shape[0], *(1,) * rank))


@opaque(
    x=(
        _input_cotangent,
        lambda t, weight, geometry, groups: _conv(t, weight, geometry=geometry, groups=groups),
    ),
    weight=(
        _kernel_cotangent,
        lambda t, x, geometry, groups: _conv(x, t, geometry=geometry, groups=groups),
    ),
    bias=(
        lambda ct, like: fit(accumulate(ct, (0, *range(2, ct.ndim))), like),
        lambda t, geometry: _along_channels(t, len(geometry.kernel)),
    ),
    batch=_batch_with_bias,
    fresh=True,
    total=True,
)
def _conv_biased(
    xp: Any, x: ArrayLike, weight: ArrayLike, bias: ArrayLike, *, geometry: Geometry, groups: int
) -> Array:
    return im2col.correlate(xp, x, weight, bias, geometry, groups)


@multilinear(
    y=lambda ct, weight, shape, dtype, geometry, groups: fit(
        _conv(ct, weight, geometry=geometry, groups=groups), (shape, dtype)
    ),
    weight=lambda ct, y, shape, dtype, geometry, groups: fit(
        _conv_kernel(ct, y, geometry=geometry, groups=groups), (shape, dtype)
    ),
    batch=_batch((1, 0, 1), (0, 0, False, False), (1, 1, False, True)),
)
def _conv_input(
    xp: Any, y: ArrayLike, weight: ArrayLike, *, geometry: Geometry, groups: int, size: Sizes
) -> Array:
    return im2col.correlate_transposed(xp, y, weight, geometry, groups, size)


@multilinear(
    x=lambda ct, y, shape, dtype, geometry, groups: _input_cotangent(
        y, ct, shape, dtype, geometry, groups
    ),
    y=lambda ct, x, shape, dtype, geometry, groups: fit(
        _conv(x, ct, geometry=geometry, groups=groups), (shape, dtype)
    ),
    batch=_batch((1, 1, 0), (1, 1, True, False), (1, 0, True, True)),
)
def _conv_kernel(xp: Any, x: ArrayLike, y: ArrayLike, *, geometry: Geometry, groups: int) -> Array:
    return im2col.correlate_kernel(xp, x, y, geometry, groups)


# --- public functions -----------------------------------------------------------------


@public("fdbr.ops")
def conv(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Any = 1,
    padding: Padding = 0,
    dilation: Any = 1,
    groups: int = 1,
    cover_all: bool = False,
) -> Array:
    """The convolution (cross-correlation) of deep learning, in any number of dimensions.

    ``out[n, o, p] = bias[o] + sum(weight[o, c, k] * x[n, c, p * stride - padding + k * dilation])``
    with the sum over channels ``c`` and positions ``k`` of the kernel.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(O, C // groups, *kernel)``; it determines the number of spatial axes.
    bias
        Shape ``(O,)``; no bias by default.
    stride, dilation
        The distance between windows, and between elements within a window: an integer, or one for
        each spatial axis.
    padding
        The number of zeros around ``x``: an integer, one for each spatial axis, or a pair
        ``(before, after)`` for each; ``"valid"`` for none; ``"same"`` for as many as make
        ``ceil(length / stride)`` windows.
    groups
        The number of groups of channels: each group of outputs depends on one group of inputs.
    cover_all
        Whether every element is in a window, as in Chainer: zeros are added at the end for one
        more window if elements would be left over.

    Returns
    -------
    array
        Shape ``(N, O, *counts)`` (without ``N`` for a single example), where ``counts`` is
        ``(length + padding - dilation * (kernel - 1) - 1) // stride + 1``, rounded up with
        ``cover_all``.  It need not be contiguous in memory.

    Raises
    ------
    ValueError
        If shapes, groups, or an argument do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.conv(np.array([[1.0, 2.0, 4.0]]), np.array([[[-1.0, 1.0]]]))
    array([[1., 2.]])
    >>> ops.conv(np.ones((2, 3, 8, 8)), np.ones((5, 3, 3, 3)), padding=1, stride=2).shape
    (2, 5, 4, 4)
    """
    x, weight, has_batch = _operands("conv", x, weight)
    _check_channels("conv", x, weight, groups, weight.shape[1] * groups)
    geometry = geometry_of(
        "conv", weight.shape[2:], stride, padding, dilation, x.shape[2:], cover_all
    )
    check_windows("conv", x, geometry)
    if bias is None:
        out = _conv(x, weight, geometry=geometry, groups=groups)
    else:
        bias = _checked_bias("conv", bias, weight, weight.shape[0])
        x = in_bias_dtype(x, bias)
        out = _conv_biased(x, weight, bias, geometry=geometry, groups=groups)
    return out if has_batch else reshape(out, out.shape[1:])


@public("fdbr.ops")
def conv_transpose(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    stride: Any = 1,
    padding: Padding = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_size: ArrayLike | None = None,
) -> Array:
    """The transposed convolution: the transpose of `conv` in its input.

    Each element of ``x`` adds the kernel, multiplied by it, to a window of the result.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(C, O // groups, *kernel)``, as for the convolution that is transposed.
    bias
        Shape ``(O,)``; no bias by default.
    stride, padding, dilation, groups
        Those of the convolution that is transposed: ``padding`` is removed from the result.  With
        ``"same"`` the result is ``stride`` times as long as ``x``.
    output_padding
        The number of elements added at the end of the result, as inputs of several lengths have an
        output of the same length: an integer, or one for each spatial axis, less than ``stride``
        or ``dilation``.
    output_size
        The lengths of the result's spatial axes, instead of ``output_padding`` (Chainer's
        ``outsize``): an integer, or one for each.

    Returns
    -------
    array
        Shape ``(N, O, *lengths)`` (without ``N`` for a single example), where ``lengths`` is
        ``(length - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1``.

    Raises
    ------
    ValueError
        If shapes, groups, or an argument do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.conv_transpose(np.array([[1.0, 2.0]]), np.array([[[1.0, 10.0]]]), stride=2)
    array([[ 1., 10.,  2., 20.]])
    """
    x, weight, has_batch = _operands("conv_transpose", x, weight)
    rank = weight.ndim - 2
    _check_channels("conv_transpose", x, weight, groups, weight.shape[0])
    x, output_padding = _pad_whole_strides(x, stride, output_padding, dilation)
    geometry, size = _transposed_geometry(
        x, weight, stride, padding, output_padding, dilation, output_size
    )
    if bias is not None:
        bias = _checked_bias("conv_transpose", bias, weight, weight.shape[1] * groups)
        x = in_bias_dtype(x, bias)
    out = _conv_input(x, weight, geometry=geometry, groups=groups, size=size)
    if bias is not None:
        out = out + _along_channels(bias, rank)
    return out if has_batch else reshape(out, out.shape[1:])


# --- arguments ----------------------------------------------------------------------


def _operands(function: str, x: Any, weight: Any) -> tuple[Any, Any, bool]:
    """Return ``x`` with a batch axis, ``weight``, and whether ``x`` had a batch axis."""
    x, weight = asarray(x), asarray(weight)
    if weight.ndim < 3 or 0 in weight.shape[2:]:
        raise ValueError(
            f"fdbr.ops.{function}: weight must have two axes of channels and then those of the "
            f"kernel, one at least; it is {describe(weight)}"
        )
    has_batch = check_spatial(function, x, weight.ndim - 2)
    return x if has_batch else reshape(x, (1, *x.shape)), weight, has_batch


def _check_channels(function: str, x: Any, weight: Any, groups: Any, needed: int) -> None:
    if not isinstance(groups, int) or groups < 1 or weight.shape[0] % groups:
        raise ValueError(
            f"fdbr.ops.{function}: groups must be an integer that divides the first axis of weight "
            f"{describe(weight)}; it is {groups!r}"
        )
    if x.shape[1] != needed:
        raise ValueError(
            f"fdbr.ops.{function}: x {describe(x)} has {x.shape[1]} channels, but weight "
            f"{describe(weight)} with groups={groups} is for {needed}"
        )


def _transposed_geometry(
    x: Any, weight: Any, stride: Any, padding: Any, extra: Any, dilation: Any, requested: Any
) -> tuple[Geometry, Sizes]:
    """Return the geometry of the convolution with output ``x``, and the lengths of its input."""
    kernel, rank = weight.shape[2:], weight.ndim - 2
    extra = per_axis("conv_transpose", "output_padding", extra, rank, least=0)
    steps = per_axis("conv_transpose", "stride", stride, rank)
    size = tuple(n * s for n, s in zip(x.shape[2:], steps, strict=True))
    if requested is not None:
        size = per_axis("conv_transpose", "output_size", requested, rank)
    geometry = geometry_of("conv_transpose", kernel, stride, padding, dilation, size)
    if requested is not None:
        if geometry.counts(size) != x.shape[2:]:
            raise ValueError(
                f"fdbr.ops.conv_transpose: output_size {size} is not one for x {describe(x)}: the "
                f"convolution makes {geometry.counts(size)} of it; the least sizes for x are "
                f"{_least_size(x, geometry)}, and less than stride {steps} may be added to them"
            )
    elif padding == "same":
        if any(extra):
            raise ValueError(
                "fdbr.ops.conv_transpose: padding='same' determines the lengths; "
                f"output_padding must be 0, not {max(extra)}; or give output_size"
            )
    else:
        size = _transposed_size(x, geometry, extra)
    return geometry, size


def _pad_whole_strides(x: Any, stride: Any, extra: Any, dilation: Any) -> tuple[Any, Any]:
    """Append zeros to ``x`` for whole strides of ``output_padding``, and return the remainder."""
    rank = x.ndim - 2
    extra = per_axis("conv_transpose", "output_padding", extra, rank, least=0)
    if not any(extra):
        return x, extra
    steps = per_axis("conv_transpose", "stride", stride, rank)
    gaps = per_axis("conv_transpose", "dilation", dilation, rank)
    if any(m >= max(step, gap) for m, step, gap in zip(extra, steps, gaps, strict=True)):
        raise ValueError(
            f"fdbr.ops.conv_transpose: output_padding {extra} must be less than stride {steps} or "
            f"dilation {gaps} on every axis"
        )
    zeros = tuple(m // step for m, step in zip(extra, steps, strict=True))
    if any(zeros):
        x = pad(x, ((0, 0), (0, 0), *((0, n) for n in zeros)))
    return x, tuple(m % step for m, step in zip(extra, steps, strict=True))


def _least_size(x: Any, geometry: Geometry) -> Sizes:
    """Return the least lengths of an input whose convolution has the shape of ``x``."""
    axes = zip(x.shape[2:], geometry.stride, geometry.padding, geometry.extents(), strict=True)
    return tuple((n - 1) * step - sum(pad) + extent for n, step, pad, extent in axes)


def _transposed_size(x: Any, geometry: Geometry, extra: Sizes) -> Sizes:
    size = tuple(n + m for n, m in zip(_least_size(x, geometry), extra, strict=True))
    if min(size) < 1:
        raise ValueError(
            f"fdbr.ops.conv_transpose: padding {geometry.padding} leaves nothing of the result: x "
            f"is {describe(x)}, and the spatial axes would be {size} long"
        )
    return size


def _checked_bias(function: str, bias: Any, weight: Any, outputs: int) -> Any:
    bias = asarray(bias)
    if bias.shape != (outputs,):
        raise ValueError(
            f"fdbr.ops.{function}: bias {describe(bias)} does not fit weight {describe(weight)}; "
            f"it must have shape {(outputs,)}"
        )
    return bias
