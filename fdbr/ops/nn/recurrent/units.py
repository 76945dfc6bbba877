"""The units of recurrent cells without their weights: gates, and the memory behind them."""

from typing import Any

from fdbr.errors.checks import describe
from fdbr.ops.declare import opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import astype, is_traced, result_type
from fdbr.ops.elementwise.logistic import sigmoid
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import concat, moveaxis, reshape
from fdbr.ops.special.library import refuse_complex
from fdbr.pytrees.typing import ArrayLike

__all__ = ["gru_gates", "lstm", "lstm_gates", "parts_of", "real", "slstm", "tree_lstm"]


def real(function: str, *values: Any) -> list[Any]:
    """Values as arrays of floating numbers, or an error if one is complex."""
    arrays = [floating(value) for value in values]
    for array in arrays:
        refuse_complex(function, array)
    return arrays


def parts_of(x: Any, count: int) -> tuple[Any, ...]:
    """Equal parts of the last axis."""
    size = x.shape[-1] // count
    return tuple(x[..., i * size : (i + 1) * size] for i in range(count))


def _batch_together(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Operands of the same leading axes have them all in a batch, too."""
    return apply(*[spread(v, flag, size) for v, flag in zip(values, batched, strict=True)])


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


# --- long short-term memory ---------------------------------------------------------


def _lstm_shared(cts: Any, out: Any, c: Any) -> tuple[Any, Any]:
    """The cotangents of the gates' sums and of the memory."""
    new, _, i, f, g, o = out
    by_new, by_h, by_i, by_f, by_g, by_o = cts
    if by_h is not None:
        bent = tanh(new)
        by_o = _plus(by_o, by_h * bent)
        by_new = _plus(by_new, by_h * o * (1 - bent * bent))
    if by_new is not None:
        by_i, by_f = _plus(by_i, by_new * g), _plus(by_f, by_new * c)
        by_g = _plus(by_g, by_new * i)
    slopes = (i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o))
    rows = zip((by_i, by_f, by_g, by_o), slopes, strict=True)
    sums = concat([0 * slope if ct is None else ct * slope for ct, slope in rows], axis=-1)
    return sums, 0 * f if by_new is None else by_new * f


def _lstm_gates_push(t: Any, out: Any, c: Any) -> tuple[Any, ...]:
    new, _, i, f, g, o = out
    by_i, by_f, by_g, by_o = parts_of(t, 4)
    by_i, by_f, by_o = by_i * i * (1 - i), by_f * f * (1 - f), by_o * o * (1 - o)
    by_g = by_g * (1 - g * g)
    by_new, bent = by_f * c + by_i * g + i * by_g, tanh(new)
    return by_new, by_o * bent + o * (1 - bent * bent) * by_new, by_i, by_f, by_g, by_o


def _lstm_memory_push(t: Any, out: Any) -> tuple[Any, ...]:
    new, _, i, f, g, o = out
    by_new, bent = f * t, tanh(new)
    return by_new, o * (1 - bent * bent) * by_new, 0 * i, 0 * f, 0 * g, 0 * o


@opaque(
    first=_lstm_shared,
    gates=(lambda shared: shared[0], _lstm_gates_push),
    c=(lambda shared: shared[1], _lstm_memory_push),
    batch=_batch_together,
    compound=True,
    fresh=True,
    total=True,
)
def _lstm(xp: Any, gates: ArrayLike, c: ArrayLike) -> Any:
    """The new memory, what is shown of it, and the four gates, which the derivative needs."""
    i, f, g, o = parts_of(gates, 4)
    if is_traced(gates):  # where all is done by one kernel
        i, f = sigmoid(i), sigmoid(f)
    else:
        i, f = parts_of(sigmoid(gates[..., : 2 * c.shape[-1]]), 2)
    g, o = tanh(g), sigmoid(o)
    new = f * c
    new += i * g
    return new, o * tanh(new), i, f, g, o


def lstm_gates(gates: Any, c: Any) -> tuple[Any, Any]:
    """The new memory and the output, for gates stacked as i, f, g, o."""
    return _lstm(*_in_one_dtype(gates, c))[:2]


def _in_one_dtype(*values: Any) -> tuple[Any, ...]:
    if len({value.dtype for value in values}) == 1:
        return values
    dtype = result_type(*values)
    return tuple(astype(value, dtype) for value in values)


def lstm(c: ArrayLike, x: ArrayLike, /, *, interleaved: bool = False) -> tuple[Any, Any]:
    """The units of long short-term memory: a memory, and four gates for each of its elements.

    ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h = sigmoid(o) * tanh(c')``, where ``i``,
    ``f``, ``g`` and ``o`` are the four parts of ``x``: Gers, Schmidhuber & Cummins, *Learning to
    forget*, Neural Computation 2000.  `lstm_cell` has the weights, too.

    Parameters
    ----------
    c
        The memory so far, shape ``(..., size)``.
    x
        The sums that go into the gates, shape ``(..., 4 * size)``: input, forget, cell and output
        gate one after the other, as in PyTorch.  If its first axis is shorter than that of ``c``,
        the further rows of ``c`` stay what they are, for sequences that have ended.
    interleaved
        Whether the four sums of each unit lie side by side, in the order cell, input, forget and
        output, as in Chainer.  There the units lie along the axis after the first one.

    Returns
    -------
    tuple
        The new memory, of the shape of ``c``, and the output, with the rows of ``x``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> c, h = ops.lstm(np.array([[1.0]]), np.array([[0.0, 0.0, 9.0, 0.0]]))
    >>> float(c[0, 0].round(3)), float(h[0, 0].round(3))
    (1.0, 0.381)
    """
    c, x = real("lstm", c, x)
    axis = 1 if interleaved and x.ndim > 2 else -1
    rows = c.ndim and x.ndim == c.ndim and x.ndim > 1 and len(x) < len(c)
    old = c[len(x) :] if rows else None
    old, c = old, c[: len(x)] if rows else c
    if not c.ndim or _without(x, axis) != _without(c, axis) or x.shape[axis] != 4 * c.shape[axis]:
        raise ValueError(
            f"fdbr.ops.lstm: x must have four gates for each element of c {describe(c)} along its "
            f"last axis, got {describe(x)}"
        )
    if interleaved:
        x = _stacked(x, axis)
    c = c if axis == -1 else moveaxis(c, axis, -1)
    new, h = lstm_gates(x, c)
    if axis != -1:
        new, h = moveaxis(new, -1, axis), moveaxis(h, -1, axis)
    return (new if old is None else concat([new, old], axis=0)), h


def _without(x: Any, axis: int) -> tuple[int, ...]:
    place = axis % max(x.ndim, 1)
    return (*x.shape[:place], *x.shape[place + 1 :])


def _stacked(x: Any, axis: int) -> Any:
    """Gates a, i, f, o of each unit side by side, as i, f, g, o one after the other at the end."""
    x = x if axis == -1 else moveaxis(x, axis, -1)
    a, i, f, o = _side_by_side(x)
    return concat([i, f, a, o], axis=-1)


def _side_by_side(x: Any) -> tuple[Any, ...]:
    parts = reshape(x, (*x.shape[:-1], x.shape[-1] // 4, 4))
    return tuple(parts[..., i] for i in range(4))


# --- gated recurrent units ----------------------------------------------------------


def _gru_shared(cts: Any, out: Any, h: Any, by_state: Any) -> tuple[Any, Any, Any]:
    """The cotangents of both sums of the gates, and of the state."""
    _, r, z, n = out
    by_new, by_r, by_z, by_n = cts
    if by_new is not None:
        by_z, by_n = _plus(by_z, by_new * (h - n)), _plus(by_n, by_new * (1 - z))
    inner = 0 * n if by_n is None else by_n * (1 - n * n)
    by_r = _plus(by_r, inner * parts_of(by_state, 3)[2]) * (r * (1 - r))
    by_z = 0 * z if by_z is None else by_z * (z * (1 - z))
    by_x = concat([by_r, by_z, inner], axis=-1)
    by_h = concat([by_r, by_z, inner * r], axis=-1)
    return by_x, by_h, 0 * z if by_new is None else by_new * z


def _gru_push(t: Any, factor: Any, out: Any, h: Any, by_state: Any) -> tuple[Any, ...]:
    _, r, z, n = out
    by_r, by_z, by_n = parts_of(t, 3)
    by_r, by_z = by_r * r * (1 - r), by_z * z * (1 - z)
    by_n = (by_n * factor + by_r * parts_of(by_state, 3)[2]) * (1 - n * n)
    return by_n + by_z * (h - n) - z * by_n, by_r, by_z, by_n


@opaque(
    first=_gru_shared,
    by_input=(
        lambda shared: shared[0],
        lambda t, out, h, by_state: _gru_push(t, 1, out, h, by_state),
    ),
    by_state=(
        lambda shared: shared[1],
        lambda t, out, h, by_state: _gru_push(t, out[1], out, h, by_state),
    ),
    h=(lambda shared: shared[2], lambda t, out: (out[2] * t, 0 * t, 0 * t, 0 * t)),
    batch=_batch_together,
    compound=True,
    fresh=True,
    total=True,
)
def _gru(xp: Any, by_input: ArrayLike, by_state: ArrayLike, h: ArrayLike) -> Any:
    """The new state, and the gates, which the derivative needs."""
    (xr, xz, xn), (hr, hz, hn) = parts_of(by_input, 3), parts_of(by_state, 3)
    if is_traced(by_input):  # where all is done by one kernel
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    else:
        front = slice(2 * h.shape[-1])
        r, z = parts_of(sigmoid(by_input[..., front] + by_state[..., front]), 2)
    n = tanh(xn + r * hn)
    return n + z * (h - n), r, z, n


def gru_gates(by_input: Any, by_state: Any, h: Any) -> Any:
    """The new state, for sums of gates stacked as r, z, n."""
    return _gru(*_in_one_dtype(by_input, by_state, h))[0]


# --- on trees -----------------------------------------------------------------------


def slstm(c1: ArrayLike, c2: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> tuple[Any, Any]:
    """The units of S-LSTM: long short-term memory of two children of a node.

    ``c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + sigmoid(f1) * c1 + sigmoid(f2) * c2``
    and ``h = sigmoid(o1 + o2) * tanh(c)``, which is what Chainer computes: after Zhu, Sobhani &
    Guo, *Long short-term memory over recursive structures*, ICML 2015.

    Parameters
    ----------
    c1, c2
        The memories of the children, shape ``(..., size)``.
    x1, x2
        The sums that go into the gates, shape ``(..., 4 * size)``: those of each unit side by
        side, in the order cell, input, forget and output, as in Chainer.

    Returns
    -------
    tuple
        The memory and the output, of the shape of ``c1``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> c, h = ops.slstm(np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 8)), np.zeros((1, 8)))
    >>> c
    array([[1., 1.]])
    """
    c1, c2, x1, x2 = real("slstm", c1, c2, x1, x2)
    wide = (*c1.shape[:-1], 4 * c1.shape[-1]) if c1.ndim else None
    if c2.shape != c1.shape or x1.shape != wide or x2.shape != wide:
        raise ValueError(
            "fdbr.ops.slstm: c1 and c2 must have one shape (..., size), and x1 and x2 the shape "
            f"(..., 4 * size), got {', '.join(map(describe, (c1, c2, x1, x2)))}"
        )
    (a1, i1, f1, o1), (a2, i2, f2, o2) = _side_by_side(x1), _side_by_side(x2)
    c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + sigmoid(f1) * c1 + sigmoid(f2) * c2
    return c, sigmoid(o1 + o2) * tanh(c)


def tree_lstm(*memories_and_x: ArrayLike) -> tuple[Any, Any]:
    """The units of a tree LSTM: long short-term memory of any number of children of a node.

    ``c = tanh(a) * sigmoid(i) + sum(sigmoid(f[n]) * c[n])`` and ``h = sigmoid(o) * tanh(c)``:
    Tai, Socher & Manning, *Improved semantic representations from tree-structured long short-term
    memory networks*, ACL 2015.  `fdbr.nn.ChildSumTreeLSTM` and `fdbr.nn.NaryTreeLSTM` have the
    weights, too.

    Parameters
    ----------
    memories_and_x
        The memories of the children, each of shape ``(..., size)``, and at last the sums that go
        into the gates, shape ``(..., (3 + children) * size)``: cell, input and output gate, and a
        forget gate for each child, one after the other.

    Returns
    -------
    tuple
        The memory and the output, of shape ``(..., size)``.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    >>> import numpy as np
    >>> from fdbr import ops
    >>> c, h = ops.tree_lstm(np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 10)))
    >>> c
    array([[1., 1.]])
    """
    if not memories_and_x:
        raise ValueError("fdbr.ops.tree_lstm: give the children's memories, and the gates at last")
    *memories, x = real("tree_lstm", *memories_and_x)
    count = 3 + len(memories)
    size, rest = divmod(x.shape[-1], count) if x.ndim else (0, 1)
    shape = (*x.shape[:-1], size)
    if rest or any(c.shape != shape for c in memories):
        raise ValueError(
            f"fdbr.ops.tree_lstm: of {len(memories)} children, x must have {count} times as many "
            "elements along its last axis as each child's memory has, and the same other axes; "
            f"got {', '.join(map(describe, memories)) or 'no child'} and x {describe(x)}"
        )
    a, i, o, *forget = parts_of(x, count)
    c = tanh(a) * sigmoid(i)
    for memory, f in zip(memories, forget, strict=True):
        c = c + sigmoid(f) * memory
    return c, sigmoid(o) * tanh(c)
