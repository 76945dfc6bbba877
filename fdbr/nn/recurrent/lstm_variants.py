"""Variants of the LSTM cell: with peepholes, and with zoneout."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops, random
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.nn.recurrent.cell import Initializer, RecurrentCell, drawn, initial, made
from fdbr.ops.nn.recurrent.cells import LSTM, Kind
from fdbr.tree import frozen, static

__all__ = ["PeepholeLSTMCell", "ZoneoutLSTMCell"]


@public("fdbr.nn")
@frozen
class PeepholeLSTMCell(RecurrentCell):
    """Long short-term memory whose gates see the memory: ``(h, c), output = cell((h, c), x)``.

    As `LSTMCell`, but ``weight_ci @ c`` is added to the input of the input gate, ``weight_cf @ c``
    to that of the forget gate, and ``weight_co @ c'``, with the new memory, to that of the output
    gate: Gers & Schmidhuber, *Recurrent nets that time and count*, IJCNN 2000.

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh
        As for every `RecurrentCell`, stacked as in `LSTMCell`.
    weight_ci, weight_cf, weight_co
        Shape ``(hidden_size, hidden_size)`` as in Chainer, or ``(hidden_size,)`` for gates that see
        only their own element of the memory, as in the paper.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.PeepholeLSTMCell.init(fdbr.random.key(0), 3, 2)
    >>> (h, c), y = cell(cell.initial_state(5), np.zeros((5, 3), "float32"))
    >>> y.shape
    (5, 2)
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any
    weight_ci: Any
    weight_cf: Any
    weight_co: Any

    _kind: ClassVar[Kind] = LSTM

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        diagonal: bool = False,
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
        diagonal
            Whether a gate sees only its own element of the memory.
        weight_init, recurrent_init, bias_init
            As for `RNNCell.init`; that of peepholes is ``recurrent_init``, unless they are
            diagonal.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        first, second = random.split(key)
        size = integer("fdbr.nn.PeepholeLSTMCell.init", "hidden_size", hidden_size, least=1)
        shape = (size,) if diagonal else (size, size)
        names = ("weight_ci", "weight_cf", "weight_co")
        own = None if diagonal else recurrent_init
        peepholes = drawn(
            second, dict.fromkeys(names, shape), dict.fromkeys(names, own), size, dtype
        )
        inits = initial(weight_init, recurrent_init, bias_init)
        cell: Self = made(cls, first, (input_size, size), bias, inits, dtype, **peepholes)
        return cell

    def advance(self, state: Any, inputs: Any) -> tuple[Any, Any]:
        """Compute one step from inputs that `project` returned."""
        h, c = state
        size = self.hidden_size
        sums = inputs + ops.linear(h, self.weight_hh)
        i, f, g, o = (sums[..., k * size : (k + 1) * size] for k in range(4))
        i = ops.sigmoid(i + _seen(self.weight_ci, c))
        f = ops.sigmoid(f + _seen(self.weight_cf, c))
        c = i * ops.tanh(g) + f * c
        h = ops.sigmoid(o + _seen(self.weight_co, c)) * ops.tanh(c)
        return (h, c), h


def _seen(weight: Any, c: Any) -> Any:
    return weight * c if weight.ndim == 1 else ops.linear(c, weight)


@public("fdbr.nn")
@frozen
class ZoneoutLSTMCell(RecurrentCell):
    """Long short-term memory that keeps some elements in training: ``cell((h, c), x)``.

    As `LSTMCell`, but in `train` each element of the memory and of the output keeps its previous
    value with a given probability: Krueger et al., *Zoneout: regularizing RNNs by randomly
    preserving hidden activations*, ICLR 2017.

    Attributes
    ----------
    weight_ih, weight_hh, bias_ih, bias_hh
        As for every `RecurrentCell`, stacked as in `LSTMCell`.
    c_rate, h_rate
        The probabilities that an element of the memory, and of ``h``, keeps its previous value.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.ZoneoutLSTMCell.init(fdbr.random.key(0), 3, 2)
    >>> x = np.zeros((5, 3), "float32")
    >>> (((h, c), y), successor) = cell.train(cell.initial_state(5), x, key=fdbr.random.key(1))
    >>> y.shape
    (5, 2)
    """

    weight_ih: Any
    weight_hh: Any
    bias_ih: Any = None
    bias_hh: Any = None
    c_rate: float = static(default=0.5)
    h_rate: float = static(default=0.5)

    _kind: ClassVar[Kind] = LSTM

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        *,
        c_rate: float = 0.5,
        h_rate: float = 0.5,
        bias: bool = True,
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
        c_rate, h_rate
            Numbers in [0, 1).
        bias
            Whether the cell has biases.
        weight_init, recurrent_init, bias_init
            As for `RNNCell.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer, or a rate not in [0, 1).
        """
        rates = {"c_rate": c_rate, "h_rate": h_rate}
        for name, rate in rates.items():
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
                raise ValueError(
                    f"fdbr.nn.ZoneoutLSTMCell.init: {name} must be a number in [0, 1), got {rate!r}"
                )
        inits = initial(weight_init, recurrent_init, bias_init)
        cell: Self = made(cls, key, (input_size, hidden_size), bias, inits, dtype, **rates)
        return cell

    def train(self, state: Any, x: Any = None, *, key: Any = None) -> tuple[Any, Self]:
        """Return a step in training, and the cell itself.

        Parameters
        ----------
        state, x
            As for a call.
        key
            A random key, which decides what is kept.

        Returns
        -------
        tuple
            ``((state, output), self)``.

        Raises
        ------
        TypeError
            If there is no key.
        """
        if key is None:
            raise TypeError(
                "fdbr.nn.ZoneoutLSTMCell: training needs a key; give key=fdbr.random.key(seed), or "
                "to nn.scan, which makes one for each step"
            )
        if x is None:
            state, x = None, state
        x = self.checked(x)
        if state is None:
            state = self.initial_state(x.shape[:-1])
        h, c = self.fitting(state, x.shape, x)
        (new_h, new_c), _ = self.advance((h, c), self.project(x))
        of_h, of_c = random.split(key)
        h = ops.zoneout(h, new_h, self.h_rate, key=of_h)
        return ((h, ops.zoneout(c, new_c, self.c_rate, key=of_c)), h), self
