"""The base class of recurrent cells, which map a state and an input to the next state."""

import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fdbr import ops, random
from fdbr.compiler.capture.tracers import capturing
from fdbr.control_flow.scan import scan as scan_rows
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.nn import initializers
from fdbr.nn.layer import Layer
from fdbr.ops.nn.recurrent.cells import Kind, Weights
from fdbr.ops.nn.recurrent.steps import Steps

__all__ = ["Initializer", "RecurrentCell", "drawn", "initial", "made", "promoted"]

Initializer = initializers.Initializer
_SMALL = 1 << 18  # multiplications of a step; below, the overhead of NumPy calls dominates


def drawn(
    key: Any,
    shapes: dict[str, tuple[int, ...]],
    inits: dict[str, Initializer | None],
    size: int,
    dtype: Any,
) -> dict[str, Any]:
    """Draw parameters by name, by default uniform between ``±1 / sqrt(size)`` as in PyTorch."""
    default = initializers.uniform(1 / math.sqrt(size))
    keys = random.split(key, len(shapes))
    return {
        name: (inits.get(name) or default)(own, shape, dtype)
        for own, (name, shape) in zip(keys, shapes.items(), strict=True)
    }


class RecurrentCell(Layer):
    """The base of recurrent cells: ``state, output = cell(state, x)``, or ``cell(x)`` at first.

    Flax's cells are called in the same form, and `fdbr.scan` and `fdbr.nn.scan` take such
    functions.  A state is an array, or for LSTM cells the pair ``(h, c)``; `initial_state` returns
    zeros.  A cell stores no state: pass it from call to call, and through `fdbr.stop_gradient` to
    cut its history, as for truncated backpropagation through time.

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
        """The functions that compute a step."""
        return self._kind

    @property
    def weights(self) -> Weights:
        """The parameters of a step."""
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    @property
    def is_plain(self) -> bool:
        """Whether the cell uses its kind's steps unchanged."""
        return type(self).advance is RecurrentCell.advance

    @property
    def input_size(self) -> int:
        """The length of the last axis of inputs."""
        return self.weight_ih.shape[1]

    @property
    def hidden_size(self) -> int:
        """The length of the last axis of the state."""
        return self.weight_hh.shape[0] // self.kind.gates

    def initial_state(self, batch_shape: Any = ()) -> Any:
        """Return a state of zeros.

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

    def __call__(self, state: Any, x: Any = None) -> Any:
        """Return the next state, and the output of the step.

        ``cell(x)``, with one argument, starts from a state of zeros, as in PyTorch.

        Parameters
        ----------
        state
            The state that the previous step returned; `None` for zeros.
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
        if x is None:
            state, x = None, state
        x = self.checked(x)
        if state is None:
            state = self.initial_state(x.shape[:-1])
        return self.advance(self.fitting(state, x.shape, x), self.project(x))

    def train(self, state: Any, x: Any = None, *, key: Any = None) -> tuple[Any, Self]:
        """Return ``((state, output), successor)``; see `Layer.train`."""
        return self(state, x), self

    def project(self, x: Any) -> Any:
        """Compute the part of a step that needs no state, for any number of steps at once."""
        return self.kind.project(self.weights, x)

    def advance(self, state: Any, inputs: Any) -> tuple[Any, Any]:
        """Compute one step from inputs that `project` returned."""
        parts = state if isinstance(state, tuple) else (state,)
        parts = self.kind.advance(self.weights, parts, inputs)
        return (parts if len(parts) > 1 else parts[0]), parts[0]

    def over(
        self, state: tuple[Any, ...], xs: Any, reverse: bool, weights: Weights | None = None
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the outputs of all steps and the last state, in one operation if possible.

        ``weights`` are used instead of the cell's own.

        Cells that override `advance` are scanned step by step.  In a jitted function small steps
        are also scanned, as the loop is compiled to machine code there.
        """
        if not self.is_plain:
            given = state if len(state) > 1 else state[0]
            end, outs = scan_rows(self.advance, given, self.project(xs), reverse=reverse)
            return outs, end if isinstance(end, tuple) else (end,)
        weights = self.weights if weights is None else weights
        length, *batch, _ = xs.shape
        sizes = (math.prod(batch),) * length
        if capturing.get() is not None and sizes[0] * math.prod(self.weight_hh.shape) < _SMALL:
            step, inputs = functools.partial(self._step, weights), self.kind.project(weights, xs)
            ends, outs = scan_rows(step, state, inputs, reverse=reverse)
            return outs, ends
        rows = tuple(ops.reshape(part, (sizes[0], part.shape[-1])) for part in state)
        data = ops.reshape(xs, (length * sizes[0], xs.shape[-1]))
        outs, ends = self.kind.over(weights, data, rows, Steps(sizes, reverse))
        ends = tuple(ops.reshape(end, part.shape) for end, part in zip(ends, state, strict=True))
        return ops.reshape(outs, (length, *batch, outs.shape[-1])), ends

    def _step(
        self, weights: Weights, state: tuple[Any, ...], inputs: Any
    ) -> tuple[tuple[Any, ...], Any]:
        state = self.kind.advance(weights, state, inputs)
        return state, state[0]

    def checked(self, x: Any) -> Any:
        """Return an input as an array; raises if its shape does not fit."""
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
        """Return the state in the steps' dtype; raises if it does not fit the input of a step."""
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
    """Cast the parts of a state to the dtype that the steps return."""
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
    """Return a cell with fresh parameters."""
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
    """Return initializers by the names of parameters."""
    return {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": bias}
