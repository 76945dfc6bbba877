"""Recurrent networks: layers of cells over sequences, in one direction or in both."""

import math
from typing import Any, Self

import numpy as np

from fdbr import ops, random
from fdbr.control_flow.scan import scan
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.nn.recurrent.cell import Initializer, RecurrentCell, promoted
from fdbr.nn.recurrent.cells import GRUCell, LSTMCell, RNNCell
from fdbr.ops.nn.recurrent.n_step import check_rate, check_states, n_step
from fdbr.ops.nn.recurrent.padded import Padded, padded
from fdbr.tree import frozen, static

__all__ = ["GRU", "LSTM", "RNN"]

_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


@public("fdbr.nn")
class _Recurrent(Layer):
    """The base of recurrent networks."""

    __slots__ = ()

    cells: tuple[Any, ...]
    batch_first: bool
    bidirectional: bool
    dropout: float

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.cells) // self._directions

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _name(self) -> str:
        return f"fdbr.nn.{type(self).__name__}"

    def torch_names(self) -> dict[str, str]:
        """Return the names of the arrays in PyTorch, such as ``weight_ih_l0_reverse``."""
        return {
            f"cells[{number}].{part}": f"{part}{self._suffix(number)}"
            for number in range(len(self.cells))
            for part in _PARTS
        }

    def _suffix(self, number: int) -> str:
        layer, backward = divmod(number, self._directions)
        return f"_l{layer}" + ("_reverse" if backward else "")

    def __getattr__(self, name: str) -> Any:
        """Return an array by its name in PyTorch."""
        part, _, rest = name.rpartition("_l")
        layer, _, backward = rest.partition("_")
        if part in _PARTS and layer.isdecimal() and backward in ("", "reverse"):
            number = int(layer) * self._directions + bool(backward)
            if number < len(self.cells) and (not backward or self.bidirectional):
                value = getattr(self.cells[number], part, None)
                if value is not None:
                    return value
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def initial_state(self, batch_shape: Any = ()) -> Any:
        """Return a state of zeros.

        Parameters
        ----------
        batch_shape
            The axes of the batch, or for a list of sequences their number.

        Returns
        -------
        array or tuple
            Shape ``(num_layers * directions, *batch_shape, hidden_size)``; for an `LSTM` a pair
            ``(h, c)`` of them.
        """
        axes = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        cell = self.cells[0]
        xp, dtype = array_module(cell.weight_hh), cell.weight_hh.dtype
        parts = [
            lock(xp.zeros((len(self.cells), *axes, width), dtype=dtype)) for width in cell._widths()
        ]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def __call__(self, x: Any, state: Any = None, *, lengths: Any = None) -> Any:
        """Return the outputs of the last layer, and the last states of all layers.

        Parameters
        ----------
        x
            An array ``(time, *batch, input_size)``, or with ``batch_first`` ``(*batch, time,
            input_size)``; or a list of sequences ``(length, input_size)`` of different lengths,
            which are not padded.  `jit` traces each combination of lengths of a list.
        state
            The first states ``(num_layers * directions, *batch, hidden_size)``, for an `LSTM` a
            pair ``(h, c)`` of them; zeros by default.  To continue a sequence, pass the returned
            state.
        lengths
            The lengths of the sequences in an array ``x`` that is padded at the end: integers of
            shape ``batch``, from 1 to the number of time steps.  They may be traced, so that one
            trace of `fdbr.jit` serves all lengths.  The results are those of a list of sequences:
            outputs in padding are 0, and the last states are the states at the lengths.

        Returns
        -------
        tuple
            The outputs, like ``x`` but with a last axis of ``directions * hidden_size``, and
            the last states.

        Raises
        ------
        ValueError
            If a sequence is empty, or there is none, or the shapes do not fit; if a length is not
            from 1 to the number of time steps.
        TypeError
            If the input is a list, and a cell overrides `advance` or ``lengths`` are given.
        """
        return self._run(x, state, lengths, 0.0, None)

    def train(
        self, x: Any, state: Any = None, *, lengths: Any = None, key: Any = None
    ) -> tuple[Any, Self]:
        """Return the same as a call, with dropout between the layers.

        Parameters
        ----------
        x, state, lengths
            As for a call.
        key
            A random key, needed if ``dropout`` is not 0.

        Returns
        -------
        tuple
            ``((outputs, states), self)``.

        Raises
        ------
        TypeError
            If a key is needed and missing, or a cell overrides `train`.
        """
        for cell in self.cells:
            if type(cell).train is not RecurrentCell.train:
                raise TypeError(
                    placed(
                        f"{self._name}: a {type(cell).__name__} has a training of its own; give "
                        "it to nn.scan with train=True"
                    )
                )
        rate = self.dropout if self.num_layers > 1 else 0.0
        if rate and key is None:
            raise TypeError(
                placed(f"{self._name}: training with dropout needs key=fdbr.random.key(seed)")
            )
        return self._run(x, state, lengths, rate, key), self

    def _run(self, x: Any, state: Any, lengths: Any, rate: float, key: Any) -> Any:
        parts = None if state is None else state if isinstance(state, tuple | list) else (state,)
        if isinstance(x, list | tuple):
            if lengths is not None:
                raise TypeError(
                    placed(
                        f"{self._name}: lengths are for a padded array x; the sequences of a list "
                        "have their own lengths"
                    )
                )
            for cell in self.cells:
                if not cell.is_plain:
                    raise TypeError(
                        placed(
                            f"{self._name}: a {type(cell).__name__} has steps of its own, and "
                            "takes no sequences of different lengths; give an array, or each "
                            "sequence to nn.scan"
                        )
                    )
            layers, kind = [cell.weights for cell in self.cells], self.cells[0].kind
            out, ends = n_step(self._name, kind, layers, self._directions, x, parts, rate, key)
        else:
            out, ends = self._over_array(x, parts, lengths, rate, key)
        return out, (ends[0] if len(ends) == 1 else ends)

    def _over_array(self, x: Any, state: Any, lengths: Any, rate: float, key: Any) -> Any:
        x = x if hasattr(x, "shape") else ops.asarray(x)
        cell, axis = self.cells[0], -2 if self.batch_first else 0
        if len(x.shape) < 2 or x.shape[-1] != cell.input_size:
            form = "*batch, time" if self.batch_first else "time, *batch"
            raise ValueError(
                placed(
                    f"{self._name}: x must have shape ({form}, {cell.input_size}), got "
                    f"{describe(x)}; or be a list of sequences"
                )
            )
        if not x.shape[axis]:
            raise ValueError(placed(f"{self._name}: x {describe(x)} is an empty sequence"))
        x = ops.moveaxis(x, -2, 0) if self.batch_first and x.ndim > 2 else x
        batch = x.shape[1:-1]
        if state is None:
            zeros = self.initial_state(batch)
            state = zeros if isinstance(zeros, tuple) else (zeros,)
        check_states(self._name, state, cell._widths(), (len(self.cells), *batch))
        state = promoted(state, x, cell.weight_hh)
        layout = None
        if lengths is not None:
            layout = padded(self._name, lengths, x.shape[0], batch)
            count = math.prod(batch)
            x = layout.zeroed(ops.reshape(x, (x.shape[0], count, x.shape[-1])))
            state = [ops.reshape(s, (len(self.cells), count, s.shape[-1])) for s in state]
        keys: Any = random.split(key, self.num_layers) if rate else None
        last = []
        for layer in range(self.num_layers):
            if layer and rate:
                x = ops.dropout(x, rate, key=keys[layer - 1])
            columns = []
            for direction in range(self._directions):
                number = layer * self._directions + direction
                first = tuple(part[number] for part in state)
                outs, end = _over(self.cells[number], first, x, bool(direction), layout)
                columns.append(outs)
                last.append(end)
            x = columns[0] if len(columns) == 1 else ops.concat(columns, axis=-1)
        ends = tuple(ops.stack(parts, axis=0) for parts in zip(*last, strict=True))
        if layout is not None:
            x = ops.reshape(x, (x.shape[0], *batch, x.shape[-1]))
            ends = tuple(ops.reshape(e, (len(self.cells), *batch, e.shape[-1])) for e in ends)
        return (ops.moveaxis(x, 0, -2) if self.batch_first and x.ndim > 2 else x), ends


def _over(cell: Any, state: Any, x: Any, reverse: bool, layout: Padded | None) -> Any:
    """Return the outputs of a cell over time in one direction, and its last state."""
    if layout is None:
        return cell.over(state, x, reverse)
    if cell.is_plain:

        def run(weights: Any, x: Any, state: Any) -> Any:
            return cell.over(state, x, False, weights)

        return layout.over(run, cell.kind, cell.weights, x, state, reverse)

    def step(carry: Any, row: Any) -> Any:
        inputs, is_given = row
        after, out = cell.advance(carry if len(carry) > 1 else carry[0], inputs)
        after = after if isinstance(after, tuple) else (after,)
        kept = tuple(ops.where(is_given, a, b) for a, b in zip(after, carry, strict=True))
        return kept, ops.where(is_given, out, 0)

    ends, outs = scan(step, state, (cell.project(x), layout.is_given), reverse=reverse)
    return outs, ends


def _made(
    cls: Any,
    cell: Any,
    key: Any,
    sizes: tuple[Any, Any, Any],
    settings: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    """Return a network with fresh parameters."""
    where = f"fdbr.nn.{cls.__name__}.init"
    inputs = integer(where, "input_size", sizes[0], least=1)
    size = integer(where, "hidden_size", sizes[1], least=1)
    depth = integer(where, "num_layers", sizes[2], least=1)
    settings["dropout"] = check_rate(where, settings["dropout"], "given in train")
    directions = 2 if settings["bidirectional"] else 1
    width = directions * (options.get("proj_size") or size)
    keys = random.split(key, depth * directions)
    cells = tuple(
        cell.init(own, width if number >= directions else inputs, size, **options)
        for number, own in enumerate(keys)
    )
    return cls(cells, **settings)


@public("fdbr.nn")
@frozen
class RNN(_Recurrent):
    """Layers of Elman's recurrent cells: ``output, h = rnn(x, h)``.

    As `torch.nn.RNN`.  The input is an array, or a list of sequences of different lengths.

    Attributes
    ----------
    cells
        An `RNNCell` for each layer, or two of them, forward and backward, one after the other.
        They are found by PyTorch's names, too: ``rnn.weight_hh_l1_reverse``.
    batch_first
        Whether arrays have shape ``(*batch, time, input_size)`` instead of ``(time, *batch,
        input_size)``.
    bidirectional
        Whether each layer has a second cell, which runs from the last element to the first.
    dropout
        The dropout rate between layers in training.

    >>> import fdbr, numpy as np
    >>> rnn = fdbr.nn.RNN.init(fdbr.random.key(0), 3, 2, num_layers=2, bidirectional=True)
    >>> y, h = rnn([np.ones((7, 3), "float32"), np.ones((4, 3), "float32")])
    >>> [part.shape for part in y], h.shape
    ([(7, 4), (4, 4)], (4, 2, 2))
    """

    cells: tuple[RNNCell, ...]
    batch_first: bool = static(default=False)
    bidirectional: bool = static(default=False)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a network with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        input_size, hidden_size
            The lengths of the last axes of the input and of each state.
        num_layers
            The number of layers.
        nonlinearity
            ``"tanh"`` or ``"relu"``.
        bias
            Whether the cells have biases.
        batch_first, dropout, bidirectional
            As the attributes.
        weight_init, recurrent_init, bias_init
            As for `RNNCell.init`.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size or number is not a positive integer, or ``dropout`` is not in [0, 1).
        """
        settings = {"batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        options = {"nonlinearity": nonlinearity, "bias": bias, "dtype": dtype}
        options |= _inits(weight_init, recurrent_init, bias_init)
        sizes = input_size, hidden_size, num_layers
        network: Self = _made(cls, RNNCell, key, sizes, settings, options)
        return network


@public("fdbr.nn")
@frozen
class GRU(_Recurrent):
    """Layers of gated recurrent units: ``output, h = gru(x, h)``.

    As `torch.nn.GRU`.  The attributes are those of `RNN`, with cells `GRUCell`.

    >>> import fdbr, numpy as np
    >>> gru = fdbr.nn.GRU.init(fdbr.random.key(0), 3, 2, batch_first=True)
    >>> y, h = gru(np.ones((5, 7, 3), "float32"))
    >>> y.shape, h.shape
    ((5, 7, 2), (1, 5, 2))
    """

    cells: tuple[GRUCell, ...]
    batch_first: bool = static(default=False)
    bidirectional: bool = static(default=False)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a network with fresh parameters; see `RNN.init`."""
        settings = {"batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        options: dict[str, Any] = {"bias": bias, "dtype": dtype}
        options |= _inits(weight_init, recurrent_init, bias_init)
        sizes = input_size, hidden_size, num_layers
        network: Self = _made(cls, GRUCell, key, sizes, settings, options)
        return network


@public("fdbr.nn")
@frozen
class LSTM(_Recurrent):
    """Layers of long short-term memory: ``output, (h, c) = lstm(x, (h, c))``.

    As `torch.nn.LSTM`.  The attributes are those of `RNN`, with cells `LSTMCell`.

    To train on parts of a long sequence, pass the last state to the next call;
    ``fdbr.stop_gradient`` of it restricts derivatives to the part.

    >>> import fdbr, numpy as np
    >>> lstm = fdbr.nn.LSTM.init(fdbr.random.key(0), 3, 2)
    >>> y, state = lstm(np.ones((7, 5, 3), "float32"))
    >>> y, (h, c) = lstm(np.ones((4, 5, 3), "float32"), fdbr.stop_gradient(state))
    >>> y.shape, h.shape, c.shape
    ((4, 5, 2), (1, 5, 2), (1, 5, 2))
    """

    cells: tuple[LSTMCell, ...]
    batch_first: bool = static(default=False)
    bidirectional: bool = static(default=False)
    dropout: float = static(default=0.0)

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        forget_bias: float | None = None,
        weight_init: Initializer | None = None,
        recurrent_init: Initializer | None = None,
        bias_init: Initializer | None = None,
        dtype: Any = np.float32,
    ) -> Self:
        """Return a network with fresh parameters; see `RNN.init` and `LSTMCell.init`."""
        settings = {"batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        options: dict[str, Any] = {"bias": bias, "dtype": dtype, "proj_size": proj_size}
        options |= _inits(weight_init, recurrent_init, bias_init) | {"forget_bias": forget_bias}
        sizes = input_size, hidden_size, num_layers
        network: Self = _made(cls, LSTMCell, key, sizes, settings, options)
        return network


def _inits(weight: Any, recurrent: Any, bias: Any) -> dict[str, Any]:
    return {"weight_init": weight, "recurrent_init": recurrent, "bias_init": bias}
