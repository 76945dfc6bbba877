"""Gradient checks as hypothesis tests."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fdbr.errors.checks import describe, name_of
from fdbr.errors.public import public
from fdbr.testing.checking import check_grads
from fdbr.testing.strategies import hypothesis_module

__all__ = ["gradient_property"]


@public("fdbr.testing")
def gradient_property(*strategies: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that turns a function into a test of its derivatives on generated arguments.

    The test is one of hypothesis's: pytest collects it, ``@hypothesis.settings`` may stand above
    it, and a failure is reported with the smallest arguments on which `check_grads` finds
    something wrong.  It has no deadline, for it calls the function many times for each example;
    settings above it have hypothesis's 200 ms, unless they say ``deadline=None`` too.

    Parameters
    ----------
    strategies
        Hypothesis strategies, one for each of the function's last parameters; each draws one
        argument.  Parameters before them are pytest's, such as fixtures, and held constant.
    options
        Those of `check_grads`: ``order``, ``modes``, ``rtol`` and ``atol``.

    Returns
    -------
    decorator
        From a function, which computes what is to be checked, to the test.

    Raises
    ------
    ModuleNotFoundError
        If hypothesis is not installed.
    TypeError
        If the function has fewer parameters than there are strategies, or an option is unknown.

    >>> import numpy as np
    >>> from fdbr.testing import arrays
    >>> @gradient_property(arrays(shape=(3,), min_value=0.5), order=2)
    ... def test_logarithm(x):
    ...     return np.log(x)
    >>> test_logarithm()
    """
    hypothesis = hypothesis_module("hypothesis", "gradient_property")
    known = list(inspect.signature(check_grads).parameters)[2:]
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(f"fdbr.testing.gradient_property: options {unknown} are not among {known}")
    st = hypothesis_module("hypothesis.strategies", "gradient_property")
    for i, strategy in enumerate(strategies):
        if not isinstance(strategy, st.SearchStrategy):
            raise TypeError(
                f"fdbr.testing.gradient_property: argument {i} must be a hypothesis strategy, not "
                f"{describe(strategy)}"
            )

    def decorate(f: Callable[..., Any]) -> Any:
        parameters = inspect.signature(f).parameters.values()
        names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        if not 0 < len(strategies) <= len(names):
            raise TypeError(
                f"fdbr.testing.gradient_property: there are {len(strategies)} strategies for "
                f"{name_of(f)}, which has the parameters {names}"
            )
        chosen = names[len(names) - len(strategies) :]

        @functools.wraps(f)
        def test(*fixed: Any, **named: Any) -> None:
            drawn = [named.pop(name) for name in chosen]

            @functools.wraps(f, updated=())
            def function(*args: Any) -> Any:
                return f(*fixed, **named, **dict(zip(chosen, args, strict=True)))

            check_grads(function, *drawn, **options)

        # Where `given` looks for settings.  Through `settings` itself, there could be no others
        # above the test.
        test._hypothesis_internal_use_settings = hypothesis.settings(deadline=None)  # type: ignore[attr-defined]
        return hypothesis.given(**dict(zip(chosen, strategies, strict=True)))(test)

    return decorate
