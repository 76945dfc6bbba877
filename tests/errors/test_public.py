"""Public functions and classes declare themselves, and nothing binds them anew."""

import importlib
from types import FunctionType

import pytest

from fdbr.errors.public import name_of_public, public

MODULES = (
    *("fdbr", "fdbr.ops", "fdbr.ops.fft", "fdbr.ops.linalg", "fdbr.tree", "fdbr.random"),
    *("fdbr.nn", "fdbr.nn.initializers", "fdbr.nn.models", "fdbr.train", "fdbr.train.optim"),
    *("fdbr.train.augment", "fdbr.debug", "fdbr.distributed", "fdbr.distributions"),
    *("fdbr.testing", "fdbr.core.array_modules"),
)
# It lies below `fdbr.errors`, and takes any value.
UNDECLARED = {"fdbr.core.array_modules.lock"}


def declared_by_itself(value):
    """Whether a value is declared public, or is an operation, which dispatch explains."""
    if isinstance(value, type) and issubclass(value, BaseException):
        return True  # there is nothing to explain
    return name_of_public(value) is not None or hasattr(value, "primitive")


@pytest.mark.parametrize("name", MODULES)
def test_each_public_function_and_class_declares_itself(name):
    module = importlib.import_module(name)
    values = {member: getattr(module, member) for member in module.__all__}
    missing = {
        f"{name}.{member}"
        for member, value in values.items()
        if isinstance(value, FunctionType | type)
        and value.__module__.startswith("fdbr.")
        and not declared_by_itself(value)
    }
    assert missing <= UNDECLARED


@pytest.mark.parametrize("name", MODULES)
def test_a_public_name_is_that_of_the_value(name):
    module = importlib.import_module(name)
    for member in module.__all__:
        value = getattr(module, member)
        public_name = None if isinstance(value, str) else name_of_declared(value)
        if public_name is not None:
            room, _, own = public_name.rpartition(".")
            at = importlib.import_module("fdbr.core.array_modules" if "backend" in room else room)
            assert getattr(at, own) is value


def name_of_declared(value):
    return name_of_public(value) if isinstance(value, FunctionType | type) else None


def test_an_error_is_explained_by_the_outermost_public_function():
    scope = {"__name__": "fdbr.train.example", "public": public}  # as if fdbr defined them
    exec(
        """
@public("fdbr.ops")
def inner(x):
    return {}[x]

@public("fdbr.train")
def outer(count, x):
    return inner(x)
""",
        scope,
    )
    with pytest.raises(KeyError) as caught:
        scope["outer"](3, "a")
    assert str(caught.value.args[0]) == (
        "fdbr.train.outer: there is no 'a' (got count=int 3, x='a'); help(fdbr.train.outer) says "
        "what it takes"
    )
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.args == ("a",)


def test_a_subclass_does_not_inherit_the_declaration():
    @public("fdbr.nn")
    class Layer:
        pass

    class Own(Layer):
        pass

    assert name_of_public(Layer) == "fdbr.nn.Layer"
    assert name_of_public(Own) is None


def test_a_function_that_is_not_explained_stays_itself():
    def f(x):
        return x

    assert public("fdbr.backend", explained=False)(f) is f
    assert name_of_public(f) == "fdbr.backend.f"
