"""Units of recurrent cells without weights: gates and memory."""

from typing import Any

from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.ops.declare import opaque
from fdbr.ops.declare.batches import spread
from fdbr.ops.dtypes import astype, result_type
from fdbr.ops.elementwise.logistic import sigmoid
from fdbr.ops.elementwise.trigonometric import tanh
from fdbr.ops.shape.creation import floating
from fdbr.ops.shape.manipulation import concat, moveaxis, reshape
from fdbr.ops.special.library import refuse_complex
from fdbr.pytrees.typing import ArrayLike

__all__ = [
    "gru_derivatives",
    "gru_gates",
    "gru_sources",
    "gru_unit",
    "lstm",
    "lstm_derivatives",
    "lstm_gates",
    "lstm_unit",
    "parts_of",
    "real",
    "slstm",
    "tree_lstm",
]


def real(function: str, *values: Any) -> list[Any]:
    """Convert values to floating arrays, or raise an error if one is complex."""
    arrays = [floating(value) for value in values]
    for array in arrays:
        refuse_complex(function, array)
    return arrays


def parts_of(x: Any, count: int) -> tuple[Any, ...]:
    """Split the last axis into equal parts."""
    size = x.shape[-1] // count
    return tuple(x[..., i * size : (i + 1) * size] for i in range(count))


def _batch_all(apply: Any, values: Any, batched: Any, size: int, params: Any) -> Any:
    """Broadcast all operands along the batch, as they have the same leading axes."""
    return apply(*[spread(v, flag, size) for v, flag in zip(values, batched, strict=True)])


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


# --- long short-term memory ---------------------------------------------------------


def lstm_unit(*values: Any) -> tuple[Any, ...]:
    """Compute the new memory, the output and the gates, from the gates' sums and the memory."""
    i, f, g, o, c = values
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * c + i * g
    return new, o * tanh(new), i, f, g, o


def lstm_derivatives(*values: Any) -> tuple[Any, ...]:
    """Compute the derivatives of the gates, and the coefficients of `linear_recurrence`.

    These are those of the sums, of the memory for the first three and of the output for the last,
    and that of the new memory in the output.
    """
    i, f, g, o, c, tanh_new = values
    derivatives = i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)
    factors = (g, c, i, tanh_new)
    k = [x * derivative for x, derivative in zip(factors, derivatives, strict=True)]
    return derivatives, k, o * (1 - tanh_new * tanh_new)


def _lstm_vjp(cts: Any, out: Any, c: Any) -> tuple[Any, Any]:
    """Compute the cotangents of the inputs of the gates and of the memory."""
    new, _, *gates = out
    ct_new, ct_h, *ct_gates = cts
    derivatives, k, a = lstm_derivatives(*gates, c, tanh(new))
    if ct_h is not None:
        ct_new = _plus(ct_new, ct_h * a)
    sums = []
    rows = zip((ct_new, ct_new, ct_new, ct_h), k, ct_gates, derivatives, strict=True)
    for ct, factor, ct_gate, derivative in rows:
        total = None if ct is None else ct * factor
        total = _plus(total, None if ct_gate is None else ct_gate * derivative)
        sums.append(0 * factor if total is None else total)
    f = gates[1]
    return concat(sums, axis=-1), 0 * f if ct_new is None else ct_new * f


def _lstm_gates_jvp(t: Any, out: Any, c: Any) -> tuple[Any, ...]:
    new, _, *gates = out
    derivatives, k, a = lstm_derivatives(*gates, c, tanh(new))
    sums = parts_of(t, 4)
    by_i, by_f, by_g, by_o = [factor * s for factor, s in zip(k, sums, strict=True)]
    t_new = by_i + by_f + by_g
    t_gates = [s * derivative for s, derivative in zip(sums, derivatives, strict=True)]
    return t_new, a * t_new + by_o, *t_gates


def _lstm_memory_jvp(t: Any, out: Any, c: Any) -> tuple[Any, ...]:
    new, _, *gates = out
    t_new = gates[1] * t
    _, _, a = lstm_derivatives(*gates, c, tanh(new))
    return t_new, a * t_new, *(0 * gate for gate in gates)


@opaque(
    first=_lstm_vjp,
    gates=(lambda shared: shared[0], _lstm_gates_jvp),
    c=(lambda shared: shared[1], _lstm_memory_jvp),
    batch=_batch_all,
    compound=True,
    fresh=True,
    total=True,
)
def _lstm(xp: Any, gates: Any, c: Any) -> Any:
    """Compute the new memory, the output, and the four gates, which the derivative needs."""
    return lstm_unit(*parts_of(gates, 4), c)


def lstm_gates(gates: Any, c: Any) -> tuple[Any, Any]:
    """Compute the new memory and the output, for inputs of gates concatenated as i, f, g, o."""
    return _lstm(*_in_one_dtype(gates, c))[:2]


def _in_one_dtype(*values: Any) -> tuple[Any, ...]:
    if len({value.dtype for value in values}) == 1:
        return values
    dtype = result_type(*values)
    return tuple(astype(value, dtype) for value in values)


@public("fdbr.ops")
def lstm(c: Any, x: Any, /, *, interleaved: bool = False) -> tuple[Any, Any]:
    """The units of long short-term memory: a memory, and four gates for each of its elements.

    ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h = sigmoid(o) * tanh(c')``, where ``i``,
    ``f``, ``g`` and ``o`` are the four parts of ``x``: Gers, Schmidhuber & Cummins, *Learning to
    forget*, Neural Computation 2000.  `lstm_cell` is the cell with weights.

    Parameters
    ----------
    c
        The previous memory, shape ``(..., size)``.
    x
        The inputs of the gates, shape ``(..., 4 * size)``: input, forget, cell and output gate
        concatenated, as in PyTorch.  If its first axis is shorter than that of ``c``, the remaining
        rows of ``c`` do not change, for sequences that have ended.
    interleaved
        Whether the four inputs of each unit are adjacent, in the order cell, input, forget and
        output, as in Chainer, where the units are on the second axis.

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
    if (
        not c.ndim
        or _shape_without(x, axis) != _shape_without(c, axis)
        or x.shape[axis] != 4 * c.shape[axis]
    ):
        raise ValueError(
            f"fdbr.ops.lstm: x must have four gates for each element of c {describe(c)} along its "
            f"last axis, got {describe(x)}"
        )
    if interleaved:
        x = _deinterleave(x, axis)
    c = c if axis == -1 else moveaxis(c, axis, -1)
    new, h = lstm_gates(x, c)
    if axis != -1:
        new, h = moveaxis(new, -1, axis), moveaxis(h, -1, axis)
    return (new if old is None else concat([new, old], axis=0)), h


def _shape_without(x: Any, axis: int) -> tuple[int, ...]:
    position = axis % max(x.ndim, 1)
    return (*x.shape[:position], *x.shape[position + 1 :])


def _deinterleave(x: Any, axis: int) -> Any:
    """Convert interleaved gates a, i, f, o to i, f, g, o, concatenated along the last axis."""
    x = x if axis == -1 else moveaxis(x, axis, -1)
    a, i, f, o = _split_interleaved(x)
    return concat([i, f, a, o], axis=-1)


def _split_interleaved(x: Any) -> tuple[Any, ...]:
    parts = reshape(x, (*x.shape[:-1], x.shape[-1] // 4, 4))
    return tuple(parts[..., i] for i in range(4))


# --- gated recurrent units ----------------------------------------------------------


def gru_unit(*values: Any) -> tuple[Any, ...]:
    """Compute the new state and the gates, from the inputs' sums, the state's, and the state."""
    x_r, x_z, x_n, h_r, h_z, h_n, h = values
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = tanh(x_n + r * h_n)
    return n + z * (h - n), r, z, n


def gru_derivatives(*values: Any) -> tuple[Any, ...]:
    """Compute the derivatives of the gates, and the coefficients of the new state.

    These are those of the state's sums, and that of the last input.
    """
    r, z, n, h, h_n = values
    derivatives = r * (1 - r), z * (1 - z), 1 - n * n
    by_r, by_z, by_n = derivatives
    new = (1 - z) * by_n
    return derivatives, [new * h_n * by_r, (h - n) * by_z, new * r], new


def gru_sources(gates: Any, derivatives: Any, h_n: Any, cts: Any) -> tuple[list[Any], Any]:
    """Compute the cotangents of the state's sums from those of the gates, and of the last input."""
    (ct_r, ct_z, ct_n), (by_r, by_z, by_n) = cts, derivatives
    inner = None if ct_n is None else ct_n * by_n
    ct_r = _plus(ct_r, None if inner is None else inner * h_n)
    ct_r, ct_z = (
        None if ct is None else ct * derivative for ct, derivative in ((ct_r, by_r), (ct_z, by_z))
    )
    return [ct_r, ct_z, None if inner is None else inner * gates[0]], inner


def _gru_vjp(cts: Any, out: Any, h: Any, state_sums: Any) -> tuple[Any, Any, Any]:
    """Compute the cotangents of both inputs of the gates, and of the state."""
    _, *gates = out
    ct_new, *ct_gates = cts
    h_n = parts_of(state_sums, 3)[2]
    derivatives, k, new = gru_derivatives(*gates, h, h_n)
    sums, inner = gru_sources(gates, derivatives, h_n, ct_gates)
    if ct_new is not None:
        sums = [_plus(s, ct_new * factor) for s, factor in zip(sums, k, strict=True)]
        inner = _plus(inner, ct_new * new)
    by_r, by_z, by_n = [0 * factor if s is None else s for s, factor in zip(sums, k, strict=True)]
    inner = 0 * new if inner is None else inner
    ct_x, ct_h = concat([by_r, by_z, inner], axis=-1), concat([by_r, by_z, by_n], axis=-1)
    z = gates[1]
    return ct_x, ct_h, 0 * z if ct_new is None else ct_new * z


def _gru_jvp(t: Any, of_state: bool, out: Any, h: Any, state_sums: Any) -> tuple[Any, ...]:
    _, *gates = out
    h_n = parts_of(state_sums, 3)[2]
    (by_r, by_z, by_n), k, new = gru_derivatives(*gates, h, h_n)
    t_r, t_z, t_n = parts_of(t, 3)
    last = k[2] if of_state else new
    t_new = k[0] * t_r + k[1] * t_z + last * t_n
    t_r, t_z = t_r * by_r, t_z * by_z
    inner = t_n * gates[0] if of_state else t_n
    return t_new, t_r, t_z, (inner + t_r * h_n) * by_n


@opaque(
    first=_gru_vjp,
    input_sums=(
        lambda shared: shared[0],
        lambda t, out, h, state_sums: _gru_jvp(t, False, out, h, state_sums),
    ),
    state_sums=(
        lambda shared: shared[1],
        lambda t, out, h, state_sums: _gru_jvp(t, True, out, h, state_sums),
    ),
    h=(lambda shared: shared[2], lambda t, out: (out[2] * t, 0 * t, 0 * t, 0 * t)),
    batch=_batch_all,
    compound=True,
    fresh=True,
    total=True,
)
def _gru(xp: Any, input_sums: Any, state_sums: Any, h: ArrayLike) -> Any:
    """Compute the new state, and the gates, which the derivative needs."""
    return gru_unit(*parts_of(input_sums, 3), *parts_of(state_sums, 3), h)


def gru_gates(input_sums: Any, state_sums: Any, h: Any) -> Any:
    """Compute the new state, for inputs of gates concatenated as r, z, n."""
    return _gru(*_in_one_dtype(input_sums, state_sums, h))[0]


# --- trees ----------------------------------------------------------------------------


@public("fdbr.ops")
def slstm(c1: ArrayLike, c2: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> tuple[Any, Any]:
    """The units of S-LSTM: long short-term memory of a node with two children.

    ``c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + sigmoid(f1) * c1 + sigmoid(f2) * c2``
    and ``h = sigmoid(o1 + o2) * tanh(c)``, as in Chainer: after Zhu, Sobhani & Guo, *Long
    short-term memory over recursive structures*, ICML 2015.

    Parameters
    ----------
    c1, c2
        The memories of the children, shape ``(..., size)``.
    x1, x2
        The inputs of the gates, shape ``(..., 4 * size)``: those of each unit are adjacent, in the
        order cell, input, forget and output, as in Chainer.

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
    (a1, i1, f1, o1), (a2, i2, f2, o2) = _split_interleaved(x1), _split_interleaved(x2)
    c = tanh(a1) * sigmoid(i1) + tanh(a2) * sigmoid(i2) + sigmoid(f1) * c1 + sigmoid(f2) * c2
    return c, sigmoid(o1 + o2) * tanh(c)


@public("fdbr.ops")
def tree_lstm(*memories_and_x: ArrayLike) -> tuple[Any, Any]:
    """The units of a tree LSTM: long short-term memory of a node with any number of children.

    ``c = tanh(a) * sigmoid(i) + sum(sigmoid(f[n]) * c[n])`` and ``h = sigmoid(o) * tanh(c)``:
    Tai, Socher & Manning, *Improved semantic representations from tree-structured long short-term
    memory networks*, ACL 2015.  `fdbr.nn.ChildSumTreeLSTM` and `fdbr.nn.NaryTreeLSTM` are the
    layers with weights.

    Parameters
    ----------
    memories_and_x
        The memories of the children, each of shape ``(..., size)``, and last the inputs of the
        gates, shape ``(..., (3 + children) * size)``: cell, input and output gate, and a forget
        gate for each child, concatenated.

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
