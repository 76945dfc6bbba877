"""In-place operators on traced values: NumPy's result, or an error.

``h += x`` writes into the array in NumPy, and every name, container and view that shows this array
sees the new elements.  A traced value is never written to: the statement binds ``h`` to a new one.
That is the same as long as nothing else shows the array.  So ``h`` must be the only reference to
its traced value, which must be neither an argument, whose array the caller has, nor a view of an
array that something else refers to.

References are counted, which costs nothing until an in-place operator asks.  How many there are
of a value with one name depends on the version of Python, so they are measured below, by the code
that counts them.  Python 3.14 does not count those that a function's parameters borrow from the
caller's names; there the callers' names are searched, too.
"""

import dis
import inspect
import sys
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

import fdbr.interop.methods  # noqa: F401  # traced values have their usual operators from there
from fdbr import ops
from fdbr.core.tracer import ReadOnly, Trace, Tracer, base_of, plain
from fdbr.core.tracer_methods import explain, install
from fdbr.errors.checks import describe

_UFUNCS: dict[str, Any] = {
    "+=": np.add,
    "-=": np.subtract,
    "*=": np.multiply,
    "/=": np.true_divide,
    "//=": np.floor_divide,
    "%=": np.remainder,
    "**=": np.power,
    "@=": np.matmul,
    "&=": np.bitwise_and,
    "|=": np.bitwise_or,
    "^=": np.bitwise_xor,
    "<<=": np.left_shift,
    ">>=": np.right_shift,
}
_METHODS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()


def _operator(symbol: str, compute: Callable[..., Any], written: Callable[..., Any]) -> Any:
    """Make an in-place operator: ``written`` gives its result from what ``compute`` gives."""

    def in_place(x: Any, y: Any) -> Any:
        counts = getrefcount(x), getrefcount(y)
        return written(symbol, x, y, compute(x, y), counts, sys._getframe())

    return in_place


def _written(symbol: str, x: Any, y: Any, out: Any, counts: tuple[int, int], frame: Any) -> Any:
    """The new traced value; NumPy's error for the result; or ours where something sees ``x``."""
    if out is NotImplemented or _is_immutable(x):
        return out
    if out.dtype != x.dtype:
        empty = np.empty((0, 0), out.dtype)
        _UFUNCS[symbol](empty, empty, out=np.empty((0, 0), x.dtype))  # NumPy's error, or none
        out = ops.astype(out, x.dtype)
    if out.shape != x.shape or (symbol == "@=" and np.ndim(y) < 2):
        raise ValueError(
            f"{symbol} on a traced {describe(x)}: an array keeps its shape, and the result with "
            f"{describe(y)} has shape {out.shape}. Write x = x {symbol[:-1]} y"
        )
    why = _seen(x, y, counts, frame)
    if why is None:
        return out
    explain(x)  # where SciPy asks for it
    kind = ValueError if why is _READ_ONLY else TypeError
    raise kind(
        f"{symbol} on a traced {describe(x)} of {x._trace}, {why}. Traced values are immutable: "
        f"write x = x {symbol[:-1]} y for a new array, and x = ops.at(x)[key].set(value), or "
        ".add(value), for an array with some other elements"
    )


def _is_immutable(x: Any) -> bool:
    """Whether NumPy has a number or an array scalar there, which operators never write to."""
    value = plain(x)
    if type(value) is np.ndarray and value.shape and not x.shape:  # a batch, of scalars
        return not isinstance(base_of(x), Tracer)  # or of views without dimensions
    return not hasattr(value, "__setitem__")


# --- what else sees an array --------------------------------------------------------

_READ_ONLY = "which is a read-only view in NumPy"
_SHARED = "to which something else refers: another name, a container, or a caller"
_VIEW = "which is a view of an array that something else shows"
_CALLED = "by a call and no statement, so that nothing takes its result"


def _seen(x: Any, y: Any, counts: tuple[int, int], frame: Any) -> str | None:
    """The other owner that would see the change in NumPy, in words; `None` if there is none."""
    bases, references, end = _bases(x)
    if isinstance(end, Trace):
        which = "a view of an argument" if bases else "an argument"
        return f"which is {which} of {end.origin[1]}, whose caller has the array"
    if isinstance(end, str):
        return f"whose array is {end}, too"
    if end is not None:
        return _READ_ONLY
    through = _reached(y, [x, *bases], counts[1])
    if any(
        count > _KNOWN["base"] + (place == through) for place, count in enumerate(references, 1)
    ):
        return _VIEW
    statement = _statement(frame.f_back)
    if statement is None:
        return _CALLED
    more = counts[0] - _KNOWN["itself" if y is x else statement] - (through == 0)
    if more > 0:
        more -= x._trace.references(x) + _in_snapshot(x, frame) + _in_snapshot(x, frame.f_back)
    borrowed = _BORROWS and statement == "local" and _has_callers(x, frame.f_back)
    return _SHARED if more > 0 or borrowed else None


def _bases(x: Any) -> tuple[list[Any], list[int], Any]:
    """The traced values of which one is a view, with the references to each; and what ends them."""
    bases: list[Any] = []
    references: list[int] = []
    base = base_of(x)
    while isinstance(base, Tracer):
        references.append(getrefcount(base))
        bases.append(base)
        base = base_of(base)
    return bases, references, base


def _reached(y: Any, arrays: list[Any], count: int) -> int | None:
    """Which of some arrays the other operand shows, if nothing else shows that, as in ``a += a.T``.

    Its reference to the array goes with the operator.
    """
    if not isinstance(y, Tracer) or count > _KNOWN["operand"]:
        return None
    base = base_of(y)
    del y
    while base is not None:
        if isinstance(base, ReadOnly):
            base = base.base
        for place, array in enumerate(arrays):
            if array is base:
                return place
        array = None
        if not isinstance(base, Tracer) or getrefcount(base) > _KNOWN["base"]:
            return None
        base = base_of(base)
    return None


def _statement(frame: Any) -> str | None:
    """The target that an in-place statement of a frame binds: a local name, or something else."""
    code, place = frame.f_code.co_code, frame.f_lasti
    if code[place] != _BINARY_OP or code[place + 1] not in _IN_PLACE:
        return None  # the operator was called, as by `functools.reduce`
    place += 2
    while not code[place]:  # the instruction's cache
        place += 2
    return "local" if dis.opname[code[place]].startswith("STORE_FAST") else "other"


def _in_snapshot(x: Any, frame: Any) -> int:
    """The references in the dict of a frame's variables that debuggers and `locals` make.

    It stays with the frame, up to Python 3.12.
    """
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return 0  # where the dict itself has the variables
    before = getrefcount(x)
    variables = frame.f_locals
    if type(variables) is not dict:
        return 0
    now = sum(value is x for value in variables.values())
    return before - getrefcount(x) + now


def _has_callers(x: Any, frame: Any) -> bool:
    """Whether a variable of a caller is a value."""
    while (frame := frame.f_back) is not None:
        if any(value is x for value in frame.f_locals.values()):
            return True
    return False


# --- how references are counted here ------------------------------------------------

_STATEMENTS = compile("\n".join(f"x {symbol} y" for symbol in _UFUNCS), "<in-place>", "exec")
_BINARY_OP = dis.opmap["BINARY_OP"]
_IN_PLACE = frozenset(
    step.arg for step in dis.get_instructions(_STATEMENTS) if step.opcode == _BINARY_OP
)


class _Probe(Tracer):
    """Something of which it is known what refers to it."""

    __slots__ = ("counts", "itself")

    def __init__(self, base: Any = None) -> None:
        self.counts: Any = ()
        if base is not None:
            self._base = base


def _note(symbol: str, x: Any, y: Any, out: Any, counts: tuple[int, int], frame: Any) -> Any:
    x.counts = *counts, *_bases(x)[1]
    return x


_Probe.__iadd__ = _operator("+=", lambda x, y: None, _note)  # type: ignore[attr-defined]


def _measured() -> tuple[dict[str, int], bool]:
    """The references that each kind of statement makes to a value which has no other ones.

    And whether a function's parameter, which is a name of the caller's too, looks like that.
    """
    cell: Any = _Probe()

    def bound() -> Any:
        nonlocal cell
        cell += 0
        return cell.counts[0]

    def called(x: Any) -> int:
        x += 0
        return int(x.counts[0])

    local: Any = _Probe(_Probe())
    local += _Probe()
    itself: Any = _Probe()
    itself += itself
    elements: Any = [_Probe()]
    elements[0] += 0
    attribute: Any = _Probe()
    attribute.itself = _Probe()
    attribute.itself += 0
    named: Any = _Probe()
    alias = named
    alias += 0
    known = {
        "local": local.counts[0],
        "operand": local.counts[1],
        "base": local.counts[2],
        "itself": itself.counts[0],
        "other": min(elements[0].counts[0], attribute.itself.counts[0], bound()),
    }
    if named.counts[0] <= known["local"]:  # references are not counted
        known = dict.fromkeys(known, -1)
    named = _Probe()
    return known, called(named) <= known["local"]


_KNOWN, _BORROWS = _measured()

for _symbol, _name in zip(_UFUNCS, _METHODS, strict=True):
    _install = _operator(_symbol, vars(Tracer)[f"__{_name}__"], _written)
    _install.__name__ = _install.__qualname__ = f"__i{_name}__"
    install(f"__i{_name}__", _install)
