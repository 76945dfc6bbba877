"""Recurrent cells over time."""

from collections.abc import Callable
from typing import Any

from fdbr import random, tree
from fdbr.control_flow.scan import scan as scan_rows
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.nn.recurrent.cell import RecurrentCell

__all__ = ["scan"]


@public("fdbr.nn")
def scan(
    cell: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    xs: Any,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: int | bool | None = None,
    train: bool = False,
    key: Any = None,
) -> Any:
    """Run a recurrent cell over time, carrying its state.

    This is `fdbr.scan` of the cell, which under `fdbr.jit` is one instruction for any number of
    steps.  A `RecurrentCell` projects the inputs of all steps at once; cells without peepholes run
    all steps as one operation, like `LSTM` and similar layers, unless ``checkpoint`` is given.

    To continue with the next part of a long sequence, pass the last state to the next call;
    ``fdbr.stop_gradient`` of it cuts the history there.

    Parameters
    ----------
    cell
        A cell, or any function ``(state, x) -> (state, output)``.
    state
        The first state; `None` for the zeros of ``cell.initial_state``.
    xs
        The inputs, a tree of arrays of shape ``(time, ...)``.
    reverse
        Whether to run from the last input to the first.  The outputs keep the order of the inputs.
    unroll, checkpoint
        As in `fdbr.scan`.
    train
        Whether to call ``cell.train``, which also returns the cell's successor; each step gets its
        own key.
    key
        A key, for cells that draw random numbers in training.

    Returns
    -------
    tuple
        The last state, and the outputs of shape ``(time, ...)``; with ``train`` the pair of that
        tuple and the successor of the cell.

    Raises
    ------
    ValueError
        If there is no step, or the shapes do not fit.
    TypeError
        If a step does not return a pair, or changes the structure of the state.

    >>> import fdbr, numpy as np
    >>> cell = fdbr.nn.LSTMCell.init(fdbr.random.key(0), 3, 2)
    >>> (h, c), outputs = fdbr.nn.scan(cell, None, np.zeros((7, 5, 3), "float32"))
    >>> h.shape, outputs.shape
    ((5, 2), (7, 5, 2))
    """
    leaves = tree.leaves(xs)
    shapes: list[Any] = [getattr(leaf, "shape", ()) for leaf in leaves]
    if not shapes or not all(shapes) or not shapes[0][0]:
        told = ", ".join(describe(leaf) for leaf in leaves) or "no array"
        raise ValueError(f"fdbr.nn.scan: xs must have a step at least along axis 0, got {told}")
    if state is None:
        if not hasattr(cell, "initial_state"):
            raise TypeError(
                "fdbr.nn.scan: give the first state of a cell without a method initial_state"
            )
        state = cell.initial_state(shapes[0][1:-1])
    options: dict[str, Any] = {"reverse": reverse, "unroll": unroll, "checkpoint": checkpoint}
    if train:
        return _in_training(cell, state, xs, key, options)
    if isinstance(cell, RecurrentCell) and hasattr(xs, "shape"):
        xs = cell.checked(xs)
        state = cell.fitting(state, xs.shape[1:], xs)
        if cell.is_plain and not checkpoint:
            parts = state if isinstance(state, tuple) else (state,)
            outs, ends = cell.over(parts, xs, bool(reverse))
            return (ends if len(ends) > 1 else ends[0]), outs
        return scan_rows(cell.advance, state, cell.project(xs), **options)
    return scan_rows(cell, state, xs, **options)


def _in_training(cell: Any, state: Any, xs: Any, key: Any, options: dict[str, Any]) -> Any:
    if key is None:

        def step(carry: Any, x: Any) -> Any:
            (state, out), successor = carry[1].train(carry[0], x)
            return (state, successor), out

        (state, cell), outs = scan_rows(step, (state, cell), xs, **options)
        return (state, outs), cell
    keys = random.split(key, len(tree.leaves(xs)[0]))

    def drawing(carry: Any, row: Any) -> Any:
        x, own = row
        (state, out), successor = carry[1].train(carry[0], x, key=own)
        return (state, successor), out

    (state, cell), outs = scan_rows(drawing, (state, cell), (xs, keys), **options)
    return (state, outs), cell
