"""Functions of Python that a program calls for what they do, and not for what they give."""

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from fdbr import tree
from fdbr.compiler.capture.tracers import capturing
from fdbr.core import effects
from fdbr.core.primitive import Facts, Primitive
from fdbr.core.tracer import Tracer, replay, whole
from fdbr.errors.public import public

__all__ = ["callback", "print"]


def _call(xp: Any, *values: Any, function: Callable[..., object]) -> None:
    if effects.callback_is_due():
        function(*values)


_primitive = Primitive("callback", "effect", _call, None, None, None, Facts(effect=True))


@public("fdbr.debug")
def callback(function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """Call a function for its effect, under `jit` in every call.

    Under transformations it is given plain values: where derivatives are taken, those that are
    differentiated; in a batch, the arrays of all examples, with the axes of batches first.  In a
    jitted function calls keep their order, and are made after all decisions have turned out as
    they were recorded; so each is made once.  What `checkpoint` runs again calls nothing.

    Parameters
    ----------
    function
        Called as ``function(*args, **kwargs)``; what it returns is dropped.
    *args, **kwargs
        Trees; arrays in them are read-only.

    Raises
    ------
    TypeError
        If ``function`` is no function.

    >>> import fdbr
    >>> seen = []
    >>> @fdbr.jit
    ... def f(x):
    ...     fdbr.debug.callback(lambda y: seen.append(float(y)), x * 2)
    ...     return x + 1
    >>> f(1.0), f(2.0), seen
    (2.0, 3.0, [2.0, 4.0])
    """
    if replay():
        return
    effects.before_effect()
    found, structure = tree.flatten((args, kwargs))
    leaves = [_read_only(whole(leaf)) for leaf in found]
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tracer)]

    def call(*values: Any) -> None:
        found = list(leaves)
        for i, value in zip(places, values, strict=True):
            found[i] = _read_only(value)
        given, named = tree.unflatten(structure, found)
        function(*given, **named)

    trace = capturing.get()
    if places:
        _primitive.apply(*(leaves[i] for i in places), function=call)
    elif trace is not None:  # a step of the program, though it depends on nothing in it
        trace.process(_primitive, (), {"function": call})
    elif effects.callback_is_due():
        call()


def _read_only(value: Any) -> Any:
    if type(value) is not np.ndarray:
        return value
    view = value.view()
    view.setflags(write=False)
    return view


@public("fdbr.debug")
def print(template: str, *args: Any, **kwargs: Any) -> None:
    """Print values, under `jit` in every call: ``print(template.format(*args, **kwargs))``.

    It is `callback` with Python's own ``print``.

    Raises
    ------
    TypeError
        If ``template`` is no string.

    >>> import fdbr
    >>> @fdbr.jit
    ... def f(x):
    ...     fdbr.debug.print("x is {:.1f}", x)
    ...     return x + 1
    >>> y = f(f(1.0))
    x is 1.0
    x is 2.0
    """

    def show(*args: Any, **kwargs: Any) -> None:
        builtins.print(template.format(*args, **kwargs))

    callback(show, *args, **kwargs)
