"""The search for the operation and the line that made the first NaN."""

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, to_numpy
from fdbr.debug.observing import Application, Observer
from fdbr.debug.sources import Source
from fdbr.debug.tape import parts
from fdbr.debug.watching import observing
from fdbr.errors.checks import describe
from fdbr.errors.public import public

__all__ = ["NaNError", "nan_check"]


class NaNError(FloatingPointError):
    """An operation gave NaN, or an infinity.

    Attributes
    ----------
    op
        The operation; `None` if it was the sum of cotangents.
    direction
        ``"forward"``, ``"tangent"`` or ``"backward"``.
    source
        The user's line; for what happens in a backward pass that of the forward pass.
    """

    def __init__(self, message: str, op: str | None, direction: str, source: Source | None) -> None:
        super().__init__(message)
        self.op = op
        self.direction = direction
        self.source = source


@public("fdbr.debug")
@contextmanager
def nan_check(*, inf: bool = False) -> Iterator[None]:
    """Raise an error as soon as an operation gives NaN.

    Forward and backward passes, of every order, are checked.  What a rule makes and masks within
    itself does not count, only what it gives.

    Parameters
    ----------
    inf
        Whether infinities are errors too.

    Raises
    ------
    NaNError
        A `FloatingPointError` that names the operation, its operands and which of them had NaN
        already, and the user's line.  In a backward pass it is the line of the forward pass from
        which it comes.

    >>> import fdbr, numpy as np
    >>> from fdbr import debug, ops
    >>> with np.errstate(all="ignore"), debug.nan_check():
    ...     slope = fdbr.grad(lambda x: ops.sum(ops.sqrt(x) * x))(np.array([0.0, 1.0]))
    Traceback (most recent call last):
        ...
    fdbr.debug.nans.NaNError: fdbr.debug.nan_check: the backward pass of sqrt gave NaN
      File "<doctest ...>", line 2, in <lambda>
        slope = fdbr.grad(lambda x: ops.sum(ops.sqrt(x) * x))(np.array([0.0, 1.0]))
      cotangent: float64[2]
      kept: float64[2]
      result: float64[2], 1 NaN, the first at [0]
    """
    with observing(_Checker(inf)):
        yield


class _Checker(Observer):
    def __init__(self, inf: bool) -> None:
        self._inf = inf
        # What made it first among the parts of an application that is still running.
        self._inside: weakref.WeakKeyDictionary[Application, Application] = (
            weakref.WeakKeyDictionary()
        )

    def sees(self, application: Application, inside: bool) -> bool:
        return True

    def after(self, application: Application, out: Any, seconds: float, given: Any) -> None:
        part = self._inside.pop(application, None)
        if not any(self._marks(value) is not None for value in parts(out)):
            return
        if application.within is not None:
            self._inside.setdefault(application.within, part or application)
            return
        raise NaNError(
            self._message(application, out, part),
            application.op,
            application.direction,
            application.source,
        )

    def reached(self, cotangents: Mapping[int, Any]) -> None:
        for cotangent in cotangents.values():
            if any(self._marks(value) is not None for value in parts(cotangent)):
                message = (
                    "fdbr.debug.nan_check: each cotangent that came to an input was sound, but "
                    f"their sum is not, as of infinities of both signs: {self._of(cotangent)}"
                )
                raise NaNError(message, None, "backward", None)

    def _marks(self, value: Any) -> Any:
        """The places of NaN in an array or number; `None` if there is none."""
        if isinstance(value, float | complex):
            value = np.asarray(value)
        if getattr(getattr(value, "dtype", None), "kind", "") not in ("f", "c"):
            return None
        xp = array_module(value)
        marks = xp.isnan(value)
        if self._inf:
            marks = marks | xp.isinf(value)
        return marks if bool(marks.any()) else None

    def _of(self, value: Any) -> str:
        """An operand, and what is wrong with it."""
        text = describe(value)
        for part in parts(value):
            marks = self._marks(part)
            if marks is not None:
                places = np.argwhere(to_numpy(marks))
                count = f"{len(places)} {'NaN or infinite' if self._inf else 'NaN'}"
                first = ", ".join(map(str, places[0]))
                return f"{text}, {count}" + (f", the first at [{first}]" if first else "")
        return text

    def _message(self, application: Application, out: Any, part: Application | None) -> str:
        had = any(self._marks(value) is not None for value in parts(list(application.operands)))
        lines = [
            f"fdbr.debug.nan_check: {_title(application)} gave "
            f"{'NaN or an infinity' if self._inf else 'NaN'}"
        ]
        if application.source is not None:
            source = application.source
            lines.append(f'  File "{source.file}", line {source.line}, in {source.function}')
            lines += [f"    {source.text}"] if source.text else []
        elif application.direction == "backward":
            lines.append("  The line is not known: nothing of fdbr.debug saw the forward pass.")
        if part is not None:
            lines.append(f"  It arose in {part}, which is a part of that.")
        for role, operand in zip(application.roles, application.operands, strict=True):
            lines.append(f"  {role}: {self._of(operand)}")
        lines += [f"  result: {self._of(value)}" for value in _results(out)]
        if had:
            lines.append(
                "  It was there already and no operation of fdbr made it: it came with the data, "
                "or NumPy made it of plain arrays."
            )
        return "\n".join(lines)


def _title(application: Application) -> str:
    if "cotangent" in application.roles:
        title = f"the backward pass of {application.op}"
    elif "tangent" in application.roles:
        title = f"the forward derivative of {application.op}"
    elif application.direction == "backward":
        title = f"{application.op}, in the backward pass,"
    else:
        title = application.op
    of = f" in the derivative of {application.rule}" if application.rule is not None else ""
    return title + of


def _results(out: Any) -> list[Any]:
    return [value for value in out if value is not None] if type(out) in (tuple, list) else [out]
