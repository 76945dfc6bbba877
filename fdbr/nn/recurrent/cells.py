"""Recurrent cells: Elman's, gated and minimal gated units, and long short-term memory."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr.core.array_modules import lock
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.recurrent.cell import Initializer, RecurrentCell, drawn, initial, made
from fdbr.ops.nn.recurrent.cells import GRU, GRU_RESET_FIRST, LSTM, MGU, RELU, TANH, Kind, Weights
from fdbr.tree import frozen, static

__all__ = ["GRUCell", "LSTMCell", "MGUCell", "RNNCell"]

_ACTIVATIONS = {"tanh": TANH, "relu": RELU}


@public("fdbr.nn")
@frozen
class RNNCell(RecurrentCell):
    """Elman's recurrent cell, `ops.rnn_tanh_cell`: ``h, output = cell(h, x)``.

    ``h' = tanh(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)``, or ``relu`` of that.  The
    output is the new state.

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh
        As for every `RecurrentCell`.
    nonlinearity
        ``"tanh"`` or ``"relu"``.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.RNNCell.init(fdbr.random.key(0), 3, 2)
    >>> h, y = cell(cell.initial_state(5), np.zeros((5, 3), "float32"))
    >>> h.shape, y is h
    ((5, 2), True)
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    nonlinearity: str = static(default="tanh")

    _kind: ClassVar[Kind] = TANH

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        nonlinearity: str = "tanh",
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a cell with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        input_size, hidden_size
            The lengths of the last axes of the input and the state.
        bias
            Whether the cell has biases.
        nonlinearity
            ``"tanh"`` or ``"relu"``.
        weight_init, recurrent_init, bias_init
            Initializers of ``weight_ih``, of ``weight_hh`` and of both biases; by default
            uniform between ``±1 / sqrt(hidden_size)``, as in PyTorch.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or the nonlinearity is unknown.
        """
        if nonlinearity not in _ACTIVATIONS:
            raise ValueError(
                f'fdbr.nn.RNNCell.init: nonlinearity must be "tanh" or "relu", not {nonlinearity!r}'
            )
        inits = initial(weight_init, recurrent_init, bias_init)
        sizes = input_size, hidden_size
        made_cell: Self = made(cls, key, sizes, bias, inits, dtype, nonlinearity=nonlinearity)
        return made_cell

    @property
    def kind(self) -> Kind:
        """The functions that compute a step."""
        return _ACTIVATIONS[self.nonlinearity]


@public("fdbr.nn")
@frozen
class GRUCell(RecurrentCell):
    """A gated recurrent unit, `ops.gru_cell`: ``h, output = cell(h, x)``.

    The gates are stacked as in PyTorch: reset, update, new.  The output is the new state.

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh
        As for every `RecurrentCell`.
    reset_first
        Whether the state is reset before its product with the weights, as in Chainer's GRU; see
        `ops.gru_cell`.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.GRUCell.init(fdbr.random.key(0), 3, 2)
    >>> h, y = cell(cell.initial_state(5), np.zeros((5, 3), "float32"))
    >>> h.shape, cell.weight_ih.shape
    ((5, 2), (6, 3))
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    reset_first: bool = static(default=False)

    _kind: ClassVar[Kind] = GRU

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        reset_first: bool = False,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a cell with fresh parameters; see `RNNCell.init`."""
        inits = initial(weight_init, recurrent_init, bias_init)
        sizes = input_size, hidden_size
        made_cell: Self = made(cls, key, sizes, bias, inits, dtype, reset_first=bool(reset_first))
        return made_cell

    @property
    def kind(self) -> Kind:
        """The functions that compute a step."""
        return GRU_RESET_FIRST if self.reset_first else GRU


@public("fdbr.nn")
@frozen
class MGUCell(RecurrentCell):
    """A minimal gated unit, `ops.mgu_cell`: ``h, output = cell(h, x)``.

    The forget gate and the new state are stacked in this order.  The output is the new state.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.MGUCell.init(fdbr.random.key(0), 3, 2)
    >>> h, y = cell(cell.initial_state(5), np.zeros((5, 3), "float32"))
    >>> h.shape, cell.weight_ih.shape
    ((5, 2), (4, 3))
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None

    _kind: ClassVar[Kind] = MGU

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a cell with fresh parameters; see `RNNCell.init`."""
        inits = initial(weight_init, recurrent_init, bias_init)
        made_cell: Self = made(cls, key, (input_size, hidden_size), bias, inits, dtype)
        return made_cell


@public("fdbr.nn")
@frozen
class LSTMCell(RecurrentCell):
    """Long short-term memory, `ops.lstm_cell`: ``(h, c), output = cell((h, c), x)``.

    The gates are stacked as in PyTorch: input, forget, cell, output.  The output is ``h``.

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh
        As for every `RecurrentCell`.
    weight_hr
        Shape ``(proj_size, hidden_size)``, or `None`: a projection of ``h``, which then has that
        length; ``weight_hh`` has as many columns.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.LSTMCell.init(fdbr.random.key(0), 3, 2)
    >>> (h, c), y = cell(cell.initial_state(5), np.zeros((5, 3), "float32"))
    >>> h.shape, c.shape, y is h
    ((5, 2), (5, 2), True)
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    weight_hr: Any = None

    _kind: ClassVar[Kind] = LSTM

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        proj_size: int = 0,
        forget_bias: float | None = None,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a cell with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        input_size, hidden_size
            The lengths of the last axes of the input and the memory.
        bias
            Whether the cell has biases.
        proj_size
            The length of ``h`` if it is projected; 0 for no projection.
        forget_bias
            The initial bias of the forget gate: this in ``bias_ih`` and 0 in ``bias_hh``.
            Chainer's cells have 1 there, and 0 in the other gates.
        weight_init, recurrent_init, bias_init
            As for `RNNCell.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or ``proj_size`` is not below ``hidden_size``.
        """
        where = "fdbr.nn.LSTMCell.init"
        size = integer(where, "hidden_size", hidden_size, least=1)
        width = integer(where, "proj_size", proj_size, least=0)
        if width >= size:
            raise ValueError(f"{where}: proj_size must be below hidden_size {size}, got {width}")
        inits = initial(weight_init, recurrent_init, bias_init)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (4 * size, integer(where, "input_size", input_size, least=1)),
            "weight_hh": (4 * size, width or size),
        }
        if bias:
            shapes |= {"bias_ih": (4 * size,), "bias_hh": (4 * size,)}
        if width:
            shapes["weight_hr"] = (width, size)
        values = drawn(key, shapes, inits, size, dtype)
        if bias and forget_bias is not None:
            for name, value in (("bias_ih", float(forget_bias)), ("bias_hh", 0.0)):
                gates = values[name].copy()
                gates[size : 2 * size] = value
                values[name] = lock(gates)
        return cls(**values)

    @property
    def weights(self) -> Weights:
        """The parameters of a step."""
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.weight_hr)
