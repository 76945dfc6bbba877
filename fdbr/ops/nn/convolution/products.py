"""Convolutions in any number of dimensions.

``sum(y[n, o, p] * weight[o, c, k] * x[n, c, p * stride - padding + k * dilation])`` is linear in
each of ``x``, ``weight`` and ``y``.  Its derivatives by the three are three primitives:
`_conv` that by ``y``, `_conv_input` that by ``x``, `_conv_kernel` that by ``weight``.  So the
transposes of each are the two others, and derivatives of all orders are convolutions again.
"""

from typing import Any

from fdbr.core.array_modules import array_module
from fdbr.errors.checks import describe
from fdbr.ops.declare import fit, multilinear, opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.declare.unbroadcast import accumulated
from fdbr.ops.nn.convolution import im2col
from fdbr.ops.nn.windows import Geometry, Sizes, check_spatial, check_windows, geometry_of, per_axis
from fdbr.ops.shape.creation import asarray
from fdbr.ops.shape.manipulation import moveaxis, reshape
from fdbr.ops.shape.padding import pad
from fdbr.pytrees.typing import Array, ArrayLike, Padding

__all__ = ["conv", "conv_transpose"]


# --- batches ------------------------------------------------------------------------


def _fold(value: Any, axis: int, groups: int = 1) -> Any:
    """The batch, first, made part of an axis of the examples, within each of its groups."""
    size, *shape = value.shape
    shape[axis : axis + 1] = [groups, shape[axis] // groups]
    value = moveaxis(reshape(value, (size, *shape)), 0, axis + 1)
    return reshape(value, (*shape[:axis], groups * size * shape[axis + 1], *shape[axis + 2 :]))


def _unfold(value: Any, axis: int, size: int, groups: int = 1) -> Any:
    """The inverse of `_fold`."""
    shape = list(value.shape)
    own = shape[axis] // (groups * size)
    split = (*shape[:axis], groups, size, own, *shape[axis + 1 :])
    value = moveaxis(reshape(value, split), axis + 1, 0)
    return reshape(value, (size, *shape[:axis], groups * own, *shape[axis + 1 :]))


def _without_examples(rule: Any, apply: Any, values: Any, batched: Any, params: Any) -> Any:
    """A batch of none: its shape is that of a batch of one, which tells how long axes are."""
    one = [
        array_module(value).zeros((1, *value.shape[1:]), dtype=value.dtype) if own else value
        for value, own in zip(values, batched, strict=True)
    ]
    return rule(apply, one, batched, 1, params)[:0]


def _batch(channels: Any, first: Any, second: Any) -> Any:
    """The batching rule of a product of two operands.

    A batch of one operand alone becomes part of one of its axes: ``first`` and ``second`` are
    that axis, the axis of the result where it is found again, and for either whether it is one
    of groups.  A batch of both makes groups: ``channels`` are the axes of channels of the two
    operands and of the result.
    """

    def batch(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
        if not size:
            return _without_examples(batch, apply, values, batched, params)
        x, y = values
        groups = params["groups"]
        if all(batched):
            x, y = _fold(x, channels[0]), _fold(y, channels[1])
            out = apply(x, y, **{**params, "groups": size * groups})
            return _unfold(out, channels[2], size)
        axis, place, grouped, regrouped = first if batched[0] else second
        if batched[0]:
            x = _fold(x, axis, groups if grouped else 1)
        else:
            y = _fold(y, axis, groups if grouped else 1)
        return _unfold(apply(x, y, **params), place, size, groups if regrouped else 1)

    return batch


def _batch_biased(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    if not size:
        return _without_examples(_batch_biased, apply, values, batched, params)
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


def _to_input(ct: Any, weight: Any, shape: Any, dtype: Any, geometry: Geometry, groups: int) -> Any:
    out = _conv_input(ct, weight, geometry=geometry, groups=groups, size=tuple(shape[2:]))
    return fit(out, (shape, dtype))


def _to_kernel(ct: Any, x: Any, shape: Any, dtype: Any, geometry: Geometry, groups: int) -> Any:
    return fit(_conv_kernel(x, ct, geometry=geometry, groups=groups), (shape, dtype))


@multilinear(
    x=_to_input,
    weight=_to_kernel,
    batch=_batch((1, 0, 1), (0, 0, False, False), (0, 1, True, True)),
)
def _conv(xp: Any, x: ArrayLike, weight: ArrayLike, *, geometry: Geometry, groups: int) -> Array:
    return im2col.correlate(xp, x, weight, None, geometry, groups)


def _along_channels(bias: Any, rank: int) -> Any:
    return reshape(bias, (bias.shape[0], *(1,) * rank))


@opaque(
    x=(
        _to_input,
        lambda t, weight, geometry, groups: _conv(t, weight, geometry=geometry, groups=groups),
    ),
    weight=(
        _to_kernel,
        lambda t, x, geometry, groups: _conv(x, t, geometry=geometry, groups=groups),
    ),
    bias=(
        lambda ct, like: fit(accumulated(ct, (0, *range(2, ct.ndim))), like),
        lambda t, geometry: _along_channels(t, len(geometry.kernel)),
    ),
    batch=_batch_biased,
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
    x=lambda ct, y, shape, dtype, geometry, groups: _to_input(
        y, ct, shape, dtype, geometry, groups
    ),
    y=lambda ct, x, shape, dtype, geometry, groups: fit(
        _conv(x, ct, geometry=geometry, groups=groups), (shape, dtype)
    ),
    batch=_batch((1, 1, 0), (1, 1, True, False), (1, 0, True, True)),
)
def _conv_kernel(xp: Any, x: ArrayLike, y: ArrayLike, *, geometry: Geometry, groups: int) -> Array:
    return im2col.correlate_kernel(xp, x, y, geometry, groups)


# --- for the user -------------------------------------------------------------------


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
    """The convolution of deep learning, which is a correlation, in any number of dimensions.

    ``out[n, o, p] = bias[o] + sum(weight[o, c, k] * x[n, c, p * stride - padding + k * dilation])``
    with the sum over channels ``c`` and positions ``k`` of the kernel.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(O, C // groups, *kernel)``: it tells the number of spatial axes.
    bias
        Shape ``(O,)``; none is added by default.
    stride, dilation
        How far windows are from each other, and elements within a window: an integer, or one
        for each spatial axis.
    padding
        How many zeros are put around ``x``: an integer, one for each spatial axis, or a pair
        ``(before, after)`` for each; ``"valid"`` for none; ``"same"`` for as many as make
        ``ceil(length / stride)`` windows.
    groups
        Into how many parts the channels are divided: each part of the outputs sees one part of
        the inputs.
    cover_all
        Whether every element is in a window, as in Chainer: zeros are added at the end for one
        window more where elements would be left over.

    Returns
    -------
    array
        Shape ``(N, O, *counts)`` (without ``N`` for a single example), where ``counts`` is
        ``(length + padding - dilation * (kernel - 1) - 1) // stride + 1``, rounded up with
        ``cover_all``.  It need not be contiguous in memory.

    Raises
    ------
    ValueError
        If shapes, groups, or a setting do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.conv(np.array([[1.0, 2.0, 4.0]]), np.array([[[-1.0, 1.0]]]))
    array([[1., 2.]])
    >>> ops.conv(np.ones((2, 3, 8, 8)), np.ones((5, 3, 3, 3)), padding=1, stride=2).shape
    (2, 5, 4, 4)
    """
    x, weight, whole = _operands("conv", x, weight)
    _check_channels("conv", x, weight, groups, weight.shape[1] * groups)
    geometry = geometry_of(
        "conv", weight.shape[2:], stride, padding, dilation, x.shape[2:], cover_all
    )
    check_windows("conv", x, geometry)
    if bias is None:
        out = _conv(x, weight, geometry=geometry, groups=groups)
    else:
        bias = _checked_bias("conv", bias, weight, weight.shape[0])
        out = _conv_biased(x, weight, bias, geometry=geometry, groups=groups)
    return out if whole else reshape(out, out.shape[1:])


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
    """The transpose of `conv` by its input: it takes the shape of an output to that of an input.

    Each element of ``x`` adds the kernel, times itself, to a window of the result.

    Parameters
    ----------
    x
        Shape ``(N, C, *spatial)``, or ``(C, *spatial)`` for a single example.
    weight
        Shape ``(C, O // groups, *kernel)``: that of the convolution whose transpose this is.
    bias
        Shape ``(O,)``; none is added by default.
    stride, padding, dilation, groups
        Those of the convolution whose transpose this is: ``padding`` is cut off the result.
        With ``"same"`` the result is ``stride`` times as long as ``x``.
    output_padding
        By how much the result is longer at its end, where several lengths of an input go with
        one output: an integer, or one for each spatial axis, less than ``stride`` or ``dilation``.
    output_size
        The lengths of the result's spatial axes, in the place of ``output_padding`` (Chainer's
        ``outsize``): an integer, or one for each.

    Returns
    -------
    array
        Shape ``(N, O, *lengths)`` (without ``N`` for a single example), where ``lengths`` is
        ``(length - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1``.

    Raises
    ------
    ValueError
        If shapes, groups, or a setting do not fit; the message names them.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> ops.conv_transpose(np.array([[1.0, 2.0]]), np.array([[[1.0, 10.0]]]), stride=2)
    array([[ 1., 10.,  2., 20.]])
    """
    x, weight, whole = _operands("conv_transpose", x, weight)
    rank = weight.ndim - 2
    _check_channels("conv_transpose", x, weight, groups, weight.shape[0])
    x, output_padding = _lengthened(x, stride, output_padding, dilation)
    geometry, size = _transposed(x, weight, stride, padding, output_padding, dilation, output_size)
    out = _conv_input(x, weight, geometry=geometry, groups=groups, size=size)
    if bias is not None:
        outputs = weight.shape[1] * groups
        bias = _checked_bias("conv_transpose", bias, weight, outputs)
        out = out + _along_channels(bias, rank)
    return out if whole else reshape(out, out.shape[1:])


# --- arguments ----------------------------------------------------------------------


def _operands(function: str, x: Any, weight: Any) -> tuple[Any, Any, bool]:
    """``x`` with a batch axis, ``weight``, and whether ``x`` had that axis from the first."""
    x, weight = asarray(x), asarray(weight)
    if weight.ndim < 3 or 0 in weight.shape[2:]:
        raise ValueError(
            f"fdbr.ops.{function}: weight must have two axes of channels and then those of the "
            f"kernel, one at least; it is {describe(weight)}"
        )
    whole = check_spatial(function, x, weight.ndim - 2)
    return x if whole else reshape(x, (1, *x.shape)), weight, whole


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


def _transposed(
    x: Any, weight: Any, stride: Any, padding: Any, more: Any, dilation: Any, wanted: Any
) -> tuple[Geometry, Sizes]:
    """The convolution for which ``x`` is an output, and the lengths of its input's axes."""
    kernel, rank = weight.shape[2:], weight.ndim - 2
    more = per_axis("conv_transpose", "output_padding", more, rank, least=0)
    steps = per_axis("conv_transpose", "stride", stride, rank)
    size = tuple(n * s for n, s in zip(x.shape[2:], steps, strict=True))
    if wanted is not None:
        size = per_axis("conv_transpose", "output_size", wanted, rank)
    geometry = geometry_of("conv_transpose", kernel, stride, padding, dilation, size)
    if wanted is not None:
        if geometry.counts(size) != x.shape[2:]:
            raise ValueError(
                f"fdbr.ops.conv_transpose: output_size {size} is not one for x {describe(x)}: the "
                f"convolution makes {geometry.counts(size)} of it; the least sizes for x are "
                f"{_least_size(x, geometry)}, and less than stride {steps} may be added to them"
            )
    elif padding == "same":
        if any(more):
            raise ValueError(
                "fdbr.ops.conv_transpose: with padding='same' the lengths are settled; "
                f"output_padding must be 0, not {max(more)}; or give output_size"
            )
    else:
        size = _transposed_size(x, geometry, more)
    return geometry, size


def _lengthened(x: Any, stride: Any, more: Any, dilation: Any) -> tuple[Any, Any]:
    """``x`` with as many zeros behind as whole strides go into ``output_padding``, and the rest."""
    rank = x.ndim - 2
    more = per_axis("conv_transpose", "output_padding", more, rank, least=0)
    if not any(more):
        return x, more
    steps = per_axis("conv_transpose", "stride", stride, rank)
    gaps = per_axis("conv_transpose", "dilation", dilation, rank)
    if any(m >= max(step, gap) for m, step, gap in zip(more, steps, gaps, strict=True)):
        raise ValueError(
            f"fdbr.ops.conv_transpose: output_padding {more} must be less than stride {steps} or "
            f"dilation {gaps} on every axis"
        )
    zeros = tuple(m // step for m, step in zip(more, steps, strict=True))
    if any(zeros):
        x = pad(x, ((0, 0), (0, 0), *((0, n) for n in zeros)))
    return x, tuple(m % step for m, step in zip(more, steps, strict=True))


def _least_size(x: Any, geometry: Geometry) -> Sizes:
    """The least lengths of an input of the convolution for which ``x`` is an output."""
    axes = zip(x.shape[2:], geometry.stride, geometry.padding, geometry.extents(), strict=True)
    return tuple((n - 1) * step - sum(pad) + extent for n, step, pad, extent in axes)


def _transposed_size(x: Any, geometry: Geometry, more: Sizes) -> Sizes:
    size = tuple(n + m for n, m in zip(_least_size(x, geometry), more, strict=True))
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
