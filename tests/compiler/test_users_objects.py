"""Objects of users that answer every name, lie or raise are what they are, and no arrays."""

from unittest import mock

import numpy as np
import pytest

import fdbr

X = np.array([1.0, 2.0, 3.0])


class AnswersNumbers:
    def __getattr__(self, name):
        return 0.5


class AnswersItself:
    def __getattr__(self, name):
        return self


class AnswersFunctions:
    def __getattr__(self, name):
        return lambda *args, **kwargs: 0.25


class HasSlots:
    __slots__ = ("own",)

    def __getattr__(self, name):
        return 0.5


def _raising(*names):
    def raises(*args):
        raise RuntimeError("nobody asked for this")

    return type(
        f"Raises{names[0]}", (), {**dict.fromkeys(names, raises), "__hash__": object.__hash__}
    )


def _lying(kind):
    return type(f"Lies{kind.__name__}", (), {"__class__": property(lambda self: kind)})


class _AnsweringClass(type):
    def __getattr__(cls, name):
        return 0.5


class OfAnsweringClass(metaclass=_AnsweringClass):
    pass


KINDS = [
    *(AnswersNumbers, AnswersItself, AnswersFunctions, HasSlots, OfAnsweringClass, mock.Mock),
    *map(_raising, ["__eq__", "__bool__", "__len__", "__iter__", "__repr__", "__array__"]),
    *map(_lying, [np.ndarray, float, dict, list, fdbr.core.tracer.Tracer]),
]


def _uses(value):
    """Functions that have an object around them, or among their arguments."""
    holder = type("Holder", (), {})()
    holder.value, table, items = value, {"value": value}, [value]

    def closed_over(x):
        return x * 2 if value is not None else x

    def of_attribute(x):
        return x * 2 if holder.value is not None else x

    def of_dict(x):
        return x * 2 if table["value"] is not None else x

    def of_list(x):
        return x * 2 if items[0] is not None else x

    def by_default(x, value=value):
        return x * 2 if value is not None else x

    def given(x, value=None):
        return x * 2 if value is not None else x

    for f in (closed_over, of_attribute, of_dict, of_list, by_default):
        yield f, (X,)
    yield given, (X, value)
    yield given, (X, {"values": [value]})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_functions_around_any_object_are_traced_and_differentiated(kind):
    for f, args in _uses(kind()):
        jitted, within = fdbr.jit(f), fdbr.jit(f)
        for _ in range(3):
            assert np.array_equal(jitted(*args), X * 2)
            slope = fdbr.grad(lambda x: within(x, *args[1:]).sum())(X)  # noqa: B023
            assert np.array_equal(slope, [2.0, 2.0, 2.0])
        report = jitted.report()
        if kind is OfAnsweringClass:
            assert (len(report.traces), report.eager) == (0, 3)
            assert "metaclass" in report.obstacles[0]
        else:
            assert (len(report.traces), report.eager, report.obstacles) == (1, 0, ())
        assert np.array_equal(fdbr.vmap(lambda x: f(x, *args[1:]))(X), X * 2)  # noqa: B023


@pytest.mark.parametrize("transform", [fdbr.jit, fdbr.vmap, fdbr.checkpoint, fdbr.grad])
def test_a_callable_that_answers_every_name_is_transformed(transform):
    class Twice(AnswersNumbers):
        def __call__(self, x):
            return x * 2

    x = X if transform is not fdbr.grad else 3.0
    wanted = X * 2 if transform is not fdbr.grad else 2.0
    transformed = transform(Twice())
    for _ in range(3):
        assert np.array_equal(transformed(x), wanted)


def test_a_leaf_whose_hash_raises_is_named():
    class NoHash:
        def __hash__(self):
            raise RuntimeError("none")

    with pytest.raises(TypeError, match=r"the leaf at .* is a NoHash.*must be hashable"):
        fdbr.jit(lambda x, y: x)(X, NoHash())
