"""The positions of operands within results of concatenation and embedding into zeros."""

from collections.abc import Iterator
from typing import Any

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of

__all__ = ["placed"]


def placed(step: Instruction) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the operands of a concatenation or an embedding, each with its key in the result.

    >>> import numpy as np
    >>> from fdbr.compiler.capture.tracing import capture
    >>> f = lambda xs: [op.CONCAT.apply(xs[0], xs[1], axis=0)]
    >>> (step,) = capture(f, f, [np.ones(2), np.ones(3)]).program.steps
    >>> [key for _, key in placed(step)]
    [(slice(0, 2, None),), (slice(2, 5, None),)]
    """
    if step.primitive is op.UNSLICE:
        key = step.params["key"]
        yield step.operands[0], key if type(key) is tuple else (key,)
    elif step.primitive is op.PAD_ZEROS:
        starts, shape = (
            [first for first, _ in step.params["widths"]],
            kind_of(step.operands[0]).shape,
        )
        yield step.operands[0], tuple(slice(i, i + n) for i, n in zip(starts, shape, strict=True))
    else:
        axis = step.params["axis"] % len(step.outs[0].kind.shape)
        start = 0
        for operand in step.operands:
            stop = start + (1 if step.primitive is op.STACK else kind_of(operand).shape[axis])
            place = start if step.primitive is op.STACK else slice(start, stop)
            yield operand, (*(slice(None),) * axis, place)
            start = stop
