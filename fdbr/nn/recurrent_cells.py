"""Recurrent cells: a state and an input give the next state and an output."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, random
from fdbr.backend import array_module, lock
from fdbr.messages import describe, integer
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.ops.networks.cells import (
    GRU,
    GRU_RESET_FIRST,
    LSTM,
    MGU,
    RELU,
    TANH,
    Kind,
    Weights,
)
from fdbr.tree import frozen, static
from fdbr.whereabouts import placed

__all__ = ["GRUCell", "LSTMCell", "MGUCell", "RNNCell", "RecurrentCell"]

Initializer = initializers.Initializer


def drawn(
    key: Any,
    shapes: dict[str, tuple[int, ...]],
    inits: dict[str, Initializer | None],
    size: int,
    dtype: Any,
) -> dict[str, Any]:
    """Parameters by name: uniform between ``±1 / sqrt(size)``, as PyTorch's, unless told else."""
    default = initializers.uniform(1 / math.sqrt(size))
    keys = random.split(key, len(shapes))
    return {
        name: (inits.get(name) or default)(own, shape, dtype)
        for own, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


class RecurrentCell(Layer):
    """The base of recurrent cells: ``state, output = cell(state, x)``.

    That is how Flax calls its cells, and what `fdbr.scan` and `fdbr.nn.scan` take.  A state is an
    array, or for LSTM cells the pair ``(h, c)``; `initial_state` makes one of zeros.  Nothing is
    stored in a cell: to carry a state over several calls, hand it on; to cut its history, as for
    truncated backpropagation through time, pass it through `fdbr.stop_gradient`.

    Attributes
    ----------
    weight_ih, weight_hh
        The weights by input, ``(gates * hidden_size, input_size)``, and by state, ``(gates *
        hidden_size, hidden_size)``, laid out as in PyTorch.
    bias_ih, bias_hh
        Shape ``(gates * hidden_size,)``, or `None`.
    """

    __slots__ = ()

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any
    _kind: ClassVar[Kind]

    @property
    def kind(self) -> Kind:
        """Its mathematics."""
        return self._kind

    @property
    def weights(self) -> Weights:
        """Its parameters."""
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    @property
    def input_size(self) -> int:
        """The length of the last axis of inputs."""
        return self.weight_ih.shape[1]

    @property
    def hidden_size(self) -> int:
        """The length of the last axis of the state."""
        return self.weight_hh.shape[0] // self.kind.gates

    def initial_state(self, batch_shape: Any = ()) -> Any:
        """A state of zeros.

        Parameters
        ----------
        batch_shape
            The axes before the last one of the inputs of a step: an integer or a tuple.

        Returns
        -------
        array or tuple
            Shape ``(*batch_shape, hidden_size)``; for LSTM cells a pair ``(h, c)`` of them.
        """
        axes = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        zeros = [lock(self._zeros((*axes, width))) for width in self._widths()]
        return zeros[0] if len(zeros) == 1 else tuple(zeros)

    def _zeros(self, shape: tuple[int, ...]) -> Any:
        return array_module(self.weight_hh).zeros(shape, dtype=self.weight_hh.dtype)

    def _widths(self) -> tuple[int, ...]:
        return (self.weight_hh.shape[1], self.hidden_size)[: self.kind.states]

    def __call__(self, state: Any, x: Any) -> Any:
        """The next state, and the output of the step.

        Parameters
        ----------
        state
            What came out of the step before; `None` for zeros.
        x
            Shape ``(*batch_shape, input_size)``.

        Returns
        -------
        tuple
            The state, and the output of shape ``(*batch_shape, hidden_size)``.

        Raises
        ------
        ValueError
            If the shapes of the state or of ``x`` do not fit.
        """
        x = self.checked(x)
        if state is None:
            state = self.initial_state(x.shape[:-1])
        return self.advance(self.fitting(state, x.shape, x), self.project(x))

    def train(self, state: Any, x: Any, *, key: Any = None) -> tuple[Any, Self]:
        """``((state, output), successor)``; see `Layer.train`."""
        return self(state, x), self

    def project(self, x: Any) -> Any:
        """The work on inputs, which needs no state, for any number of steps at once."""
        return self.kind.project(self.weights, x)

    def advance(self, state: Any, inputs: Any) -> tuple[Any, Any]:
        """A step, of which `project` made the inputs."""
        parts = state if isinstance(state, tuple) else (state,)
        parts = self.kind.advance(self.weights, parts, inputs)
        return (parts if len(parts) > 1 else parts[0]), parts[0]

    def checked(self, x: Any) -> Any:
        """An input as an array, or an error if it does not fit."""
        if not hasattr(x, "shape"):
            x = ops.asarray(x)
        if not x.shape or x.shape[-1] != self.input_size:
            raise ValueError(
                placed(
                    f"{self._name}: x must have shape (..., {self.input_size}), got {describe(x)}"
                )
            )
        return x

    def fitting(self, state: Any, shape: tuple[int, ...], x: Any) -> Any:
        """A state that fits the shape of the input of a step, or an error."""
        widths = self._widths()
        parts = state if isinstance(state, tuple | list) else (state,)
        if len(parts) != len(widths):
            wanted = "an array" if len(widths) == 1 else "a pair (h, c)"
            raise TypeError(placed(f"{self._name}: the state must be {wanted}, got {_told(state)}"))
        for name, part, width in zip("hc", parts, widths, strict=False):
            if getattr(part, "shape", None) != (*shape[:-1], width):
                wanted = ", ".join(map(str, (*shape[:-1], width)))
                raise ValueError(
                    placed(
                        f"{self._name}: {name} of the state must have shape ({wanted}) beside x "
                        f"{describe(x)}, got {describe(part)}"
                    )
                )
        parts = promoted(parts, x, self.weight_hh)
        return parts[0] if len(widths) == 1 else parts

    @property
    def _name(self) -> str:
        return f"fdbr.nn.{type(self).__name__}"


def promoted(parts: Sequence[Any], *beside: Any) -> tuple[Any, ...]:
    """The parts of a state in the dtype that the steps give it."""
    to = ops.result_type(*parts, *beside)
    return tuple(part if part.dtype == to else ops.astype(part, to) for part in parts)


def _told(state: Any) -> str:
    return f"{len(state)} values" if isinstance(state, tuple | list) else describe(state)


def made(
    cls: Any,
    key: Any,
    sizes: tuple[Any, Any],
    bias: bool,
    inits: dict[str, Initializer | None],
    dtype: Any,
    **settings: Any,
) -> Any:
    """A cell with fresh parameters."""
    where, gates = f"fdbr.nn.{cls.__name__}.init", cls._kind.gates
    inputs = integer(where, "input_size", sizes[0], least=1)
    size = integer(where, "hidden_size", sizes[1], least=1)
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (gates * size, inputs),
        "weight_hh": (gates * size, size),
    }
    if bias:
        shapes |= {"bias_ih": (gates * size,), "bias_hh": (gates * size,)}
    values = {"bias_ih": None, "bias_hh": None, **drawn(key, shapes, inits, size, dtype)}
    return cls(**values, **settings)


def initial(weight: Any, recurrent: Any, bias: Any) -> dict[str, Initializer | None]:
    """Initializers by the names of parameters."""
    return {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": bias}


_ACTIVATIONS = {"tanh": TANH, "relu": RELU}


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
        """A cell with fresh parameters.

        Parameters
        ----------
        key
            A key.
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
            If a size is no positive integer, or there is no such nonlinearity.
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
        """Its mathematics."""
        return _ACTIVATIONS[self.nonlinearity]


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
        """A cell with fresh parameters; see `RNNCell.init`."""
        inits = initial(weight_init, recurrent_init, bias_init)
        sizes = input_size, hidden_size
        made_cell: Self = made(cls, key, sizes, bias, inits, dtype, reset_first=bool(reset_first))
        return made_cell

    @property
    def kind(self) -> Kind:
        """Its mathematics."""
        return GRU_RESET_FIRST if self.reset_first else GRU


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
        """A cell with fresh parameters; see `RNNCell.init`."""
        inits = initial(weight_init, recurrent_init, bias_init)
        made_cell: Self = made(cls, key, (input_size, hidden_size), bias, inits, dtype)
        return made_cell


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
        """A cell with fresh parameters.

        Parameters
        ----------
        key
            A key.
        input_size, hidden_size
            The lengths of the last axes of the input and the memory.
        bias
            Whether the cell has biases.
        proj_size
            The length of ``h``, if it is to be projected.
        forget_bias
            What the biases of the forget gate are set to: this in ``bias_ih`` and 0 in
            ``bias_hh``.  Chainer's cells have 1 there, and 0 in the other gates.
        weight_init, recurrent_init, bias_init
            As for `RNNCell.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is no positive integer, or ``proj_size`` is not below ``hidden_size``.
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
        """Its parameters."""
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.weight_hr)
