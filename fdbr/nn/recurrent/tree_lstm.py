"""LSTM cells on trees: a node's state is computed from its children's."""

from typing import Any, ClassVar, Self

import numpy as np

from fdbr import ops
from fdbr.core.array_modules import array_module, lock
from fdbr.errors.checks import describe, integer
from fdbr.errors.layer_path import placed
from fdbr.errors.public import public
from fdbr.nn.layer import Layer
from fdbr.nn.recurrent.cell import Initializer, drawn
from fdbr.tree import frozen

__all__ = ["ChildSumTreeLSTM", "NaryTreeLSTM"]


@public("fdbr.nn")
class _TreeCell(Layer):
    """The base of cells on trees."""

    __slots__ = ()

    weight_ih: Any
    weight_hh: Any

    @property
    def hidden_size(self) -> int:
        """The length of the last axis of a state."""
        raise NotImplementedError

    @property
    def input_size(self) -> int:
        """The length of the last axis of inputs."""
        return self.weight_ih.shape[1]

    def initial_state(self, batch_shape: Any = ()) -> Any:
        """Return zeros ``(h, c)`` of shape ``(*batch_shape, hidden_size)``, for a missing child."""
        axes = (batch_shape,) if isinstance(batch_shape, int) else tuple(batch_shape)
        like = self.weight_ih
        zeros = lock(array_module(like).zeros((*axes, self.hidden_size), dtype=like.dtype))
        return zeros, zeros

    def train(self, *states_and_x: Any, key: Any = None) -> tuple[Any, Self]:
        """Return ``(self(*states, x), self)``; see `Layer.train`."""
        return self(*states_and_x), self

    def _arguments(self, given: tuple[Any, ...]) -> tuple[list[Any], list[Any], Any]:
        """Check the arguments; returns the outputs and memories of the children, and the input."""
        name = f"fdbr.nn.{type(self).__name__}"
        if not given:
            raise TypeError(placed(f"{name}: give the states of the children, and x at last"))
        *states, x = given
        if x is None and not states:
            raise TypeError(placed(f"{name}: x is None, and there is no child: a leaf needs an x"))
        for i, state in enumerate(states):
            if state is None:
                raise ValueError(
                    placed(
                        f"{name}: child {i} is missing (None); give its state (h, c), or "
                        "initial_state(batch_shape) for a child that is not there"
                    )
                )
            if not isinstance(state, tuple | list) or len(state) != 2:
                raise TypeError(
                    placed(f"{name}: the state of child {i} must be (h, c), got {describe(state)}")
                )
        if x is not None:
            x = x if hasattr(x, "shape") else ops.asarray(x)
            if not x.shape or x.shape[-1] != self.input_size:
                raise ValueError(
                    placed(f"{name}: x must have shape (..., {self.input_size}), got {describe(x)}")
                )
        axes = getattr(states[0][0] if x is None else x, "shape", ())[:-1]
        shape = (*axes, self.hidden_size)
        for i, state in enumerate(states):
            for part, value in zip("hc", state, strict=True):
                if getattr(value, "shape", None) != shape:
                    raise ValueError(
                        placed(
                            f"{name}: {part} of child {i} must have shape {shape}, got "
                            f"{describe(value)}"
                        )
                    )
        return [h for h, _ in states], [c for _, c in states], x


@public("fdbr.nn")
@frozen
class ChildSumTreeLSTM(_TreeCell):
    """Long short-term memory of any number of children, in any order: ``cell(*states, x)``.

    The children's outputs are added up for the gates, and each child has its own forget gate,
    computed from its own output: Tai, Socher & Manning, *Improved semantic representations from
    tree-structured long short-term memory networks*, ACL 2015.

    Attributes
    ----------
    weight_ih, bias
        Shapes ``(4 * hidden_size, input_size)`` and ``(4 * hidden_size,)``: cell, input, output
        and forget gate one after the other, as in Chainer; the bias may be `None`.
    weight_hh
        Shape ``(3 * hidden_size, hidden_size)``: cell, input and output gate, by the sum of the
        children's outputs.
    weight_hf
        Shape ``(hidden_size, hidden_size)``: the forget gate, by a child's output.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.ChildSumTreeLSTM.init(fdbr.random.key(0), 3, 2)
    >>> left, right = cell(np.ones(3, "float32")), cell(np.zeros(3, "float32"))
    >>> h, c = cell(left, right, None)
    >>> h.shape, c.shape
    ((2,), (2,))
    """

    weight_ih: Any
    weight_hh: Any
    weight_hf: Any
    bias: Any = None

    chainer_names: ClassVar = {
        "weight_ih": "W_x/W",
        "weight_hh": "W_h_aio/W",
        "weight_hf": "W_h_f/W",
        "bias": "W_x/b",
    }

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
        """Return a cell with fresh parameters.

        Parameters
        ----------
        key
            A random key.
        input_size, hidden_size
            The lengths of the last axes of the input and a state.
        bias
            Whether the cell has a bias.
        weight_init, recurrent_init, bias_init
            Initializers of ``weight_ih``, of the weights by state, and of the bias; by default
            uniform between ``±1 / sqrt(hidden_size)``.
        dtype
            The dtype of the parameters.

        Raises
        ------
        TypeError, ValueError
            If a size is not a positive integer.
        """
        where = "fdbr.nn.ChildSumTreeLSTM.init"
        size = integer(where, "hidden_size", hidden_size, least=1)
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (4 * size, integer(where, "input_size", input_size, least=1)),
            "weight_hh": (3 * size, size),
            "weight_hf": (size, size),
        }
        if bias:
            shapes["bias"] = (4 * size,)
        inits = {"weight_ih": weight_init, "bias": bias_init}
        inits |= dict.fromkeys(("weight_hh", "weight_hf"), recurrent_init)
        return cls(**drawn(key, shapes, inits, size, dtype))

    @property
    def hidden_size(self) -> int:
        """The length of the last axis of a state."""
        return self.weight_hh.shape[1]

    def __call__(self, *states_and_x: Any) -> Any:
        """Return the state of a node.

        Parameters
        ----------
        states_and_x
            The states ``(h, c)`` of the children, none for a leaf, each ``(..., hidden_size)``, and
            last the node's input ``(..., input_size)``, or `None` for zeros.

        Returns
        -------
        tuple
            The pair ``(h, c)`` of the node.

        Raises
        ------
        ValueError
            If a child is `None`, or the shapes do not fit.
        """
        hs, cs, x = self._arguments(states_and_x)
        size = self.hidden_size
        sums = self.bias if x is None else ops.linear(x, self.weight_ih, self.bias)
        gates = None if sums is None else sums[..., : 3 * size]
        own = None if sums is None else sums[..., 3 * size :]
        if hs:
            total = hs[0]
            for h in hs[1:]:
                total = total + h
            gates = _added(ops.linear(total, self.weight_hh), gates)
        forget = [_added(ops.linear(h, self.weight_hf), own) for h in hs]
        c, h = ops.tree_lstm(*cs, ops.concat([gates, *forget], axis=-1))
        return h, c


@public("fdbr.nn")
@frozen
class NaryTreeLSTM(_TreeCell):
    """Long short-term memory of a fixed number of children, in order: ``cell(*states, x)``.

    Each child has weights of its own for each gate: Tai, Socher & Manning, ACL 2015, with an
    input's weights for each forget gate, as in Bowman et al., *A fast unified model for parsing
    and sentence understanding*, ACL 2016.

    Attributes
    ----------
    weight_ih, bias
        Shapes ``((3 + n_ary) * hidden_size, input_size)`` and ``((3 + n_ary) * hidden_size,)``:
        cell, input and output gate, and a forget gate for each child, one after the other, as in
        Chainer; the bias may be `None`.
    weight_hh
        A tuple of the weights by each child's output, ``((3 + n_ary) * hidden_size,
        hidden_size)``.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.NaryTreeLSTM.init(fdbr.random.key(0), 3, 2)
    >>> left, right = cell(np.ones(3, "float32")), cell(np.zeros(3, "float32"))
    >>> h, c = cell(left, right, None)
    >>> h.shape, c.shape
    ((2,), (2,))
    """

    weight_ih: Any
    weight_hh: tuple[Any, ...]
    bias: Any = None

    def chainer_names(self) -> dict[str, str]:
        """Return the names of the arrays in Chainer's files."""
        names = {f"weight_hh[{i}]": f"W_h{i + 1}/W" for i in range(self.n_ary)}
        return {"weight_ih": "W_x/W", "bias": "W_x/b", **names}

    @classmethod
    def init(
        cls,
        key: Any,
        input_size: int,
        hidden_size: int,
        n_ary: int = 2,
        *,
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
            The lengths of the last axes of the input and a state.
        n_ary
            The number of children.
        bias, weight_init, recurrent_init, bias_init, dtype
            As for `ChildSumTreeLSTM.init`.

        Raises
        ------
        TypeError, ValueError
            If a size, or the number of children, is not a positive integer.
        """
        where = "fdbr.nn.NaryTreeLSTM.init"
        size = integer(where, "hidden_size", hidden_size, least=1)
        count = integer(where, "n_ary", n_ary, least=1)
        rows = (3 + count) * size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, integer(where, "input_size", input_size, least=1))
        }
        if bias:
            shapes["bias"] = (rows,)
        names = [f"weight_h{i}" for i in range(count)]
        shapes |= dict.fromkeys(names, (rows, size))
        inits = {"weight_ih": weight_init, "bias": bias_init}
        inits |= dict.fromkeys(names, recurrent_init)
        values = drawn(key, shapes, inits, size, dtype)
        values["weight_hh"] = tuple(values.pop(name) for name in names)
        return cls(**values)

    @property
    def hidden_size(self) -> int:
        """The length of the last axis of a state."""
        return self.weight_hh[0].shape[1]

    @property
    def n_ary(self) -> int:
        """The number of children."""
        return len(self.weight_hh)

    def __call__(self, *states_and_x: Any) -> Any:
        """Return the state of a node.

        Parameters
        ----------
        states_and_x
            The states ``(h, c)`` of all children, each ``(..., hidden_size)``, or none of them for
            a leaf, and last the node's input ``(..., input_size)``, or `None` for zeros.

        Returns
        -------
        tuple
            The pair ``(h, c)`` of the node.

        Raises
        ------
        ValueError
            If a child is missing, there are too many, or the shapes do not fit.
        """
        hs, cs, x = self._arguments(states_and_x)
        if hs and len(hs) != self.n_ary:
            raise ValueError(
                placed(
                    f"fdbr.nn.NaryTreeLSTM: a node has {self.n_ary} children, or none if it is a "
                    f"leaf, and got {len(hs)}; give initial_state(batch_shape) for a child that "
                    "is not there"
                )
            )
        sums = self.bias if x is None else ops.linear(x, self.weight_ih, self.bias)
        for h, weight in zip(hs, self.weight_hh, strict=False):
            sums = _added(ops.linear(h, weight), sums)
        if not hs:
            sums = sums[..., : 3 * self.hidden_size]
        c, h = ops.tree_lstm(*cs, sums)
        return h, c


def _added(a: Any, b: Any) -> Any:
    return a if b is None else a + b
