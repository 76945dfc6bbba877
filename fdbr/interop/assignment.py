"""Assignment of a traced value to one element of a NumPy array: an error that says what to write.

For ``array[0] = x`` NumPy asks for ``float(x)``.  If that fails and ``x`` is a sequence, which is
to say that its type has ``__getitem__``, NumPy hides the error behind one of its own that says
nothing of what to do.  It looks at the type after `float` has failed: so a value that refuses to
be assigned has, until it is used next, a class of its own kind without ``__getitem__``.
"""

import dis
import sys
import types
from typing import Any

from fdbr import ops
from fdbr.core.tracer import Tracer
from fdbr.core.tracer_methods import install, number, refuse_float, refusing

_STORING = dis.opmap["STORE_SUBSCR"]
_set_class: Any = vars(object)["__class__"].__set__
_refuse_assignment = refusing(
    "assignment of {} to an element of an array: NumPy's arrays hold numbers, and that would cut "
    "it off from its derivative. Write B = ops.at(B)[key].set(x) for B[key] = x, and "
    "B = ops.at(B)[key].add(x) for +=; or collect the values in a list and join them by ops.stack."
)
_hidden: dict[type, type] = {}
"""For each class of traced values, the one without ``__getitem__``."""


def _complete(kind: Any, hidden: bool = False) -> None:
    """Give a class of traced values what `Tracer` must not have for all of them."""
    if not hidden and Tracer in kind.__bases__ and "__getitem__" not in vars(kind):
        kind.__getitem__ = ops.getitem


Tracer.__init_subclass__ = classmethod(_complete)  # type: ignore[assignment]
for _kind in Tracer.__subclasses__():
    _complete(_kind)


def _hide(x: Any) -> None:
    """Take ``__getitem__`` from a traced value, until it is used next."""
    kind = type(x)
    if Tracer not in kind.__bases__:
        return
    if kind not in _hidden:

        def come_back(self: Any, name: str) -> Any:
            _set_class(self, kind)
            return getattr(self, name)

        def body(names: dict[str, Any]) -> None:
            names |= {"__slots__": kind.__slots__, "__getattribute__": come_back}

        _hidden[kind] = types.new_class(kind.__name__, (Tracer,), {"hidden": True}, body)
    _set_class(x, _hidden[kind])


def _refuse(x: Any) -> None:
    caller = sys._getframe(3)  # above `number` and `_float`
    if caller.f_code.co_code[caller.f_lasti] != _STORING:
        refuse_float(x)
    try:
        _refuse_assignment(x)
    finally:
        _hide(x)


def _float(x: Any) -> float:
    return number(x, float, _refuse)  # type: ignore[arg-type]


install("__float__", _float)
