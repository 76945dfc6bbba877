"""Errors inside backward rules say whose rule it was."""

import inspect

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops
from fdbr.core.backward_notes import blame
from fdbr.core.primitive import registry
from fdbr.ops.declare import elementwise, opaque


def fails(*_):
    raise ValueError("it is broken")


@elementwise(x=lambda y: y, y=lambda x: fails())
def broken_product(xp, x, y):
    return x * y


@opaque(x=(lambda ct, x: fails(), lambda t, x: t))
def broken_copy(xp, x):
    return xp.positive(x)


@fdbr.custom_vjp
def broken_function(x):
    return x * 1.0


broken_function.defvjp(lambda x: (x * 1.0, x), lambda x, ct: fails())

RULES = {
    "elementwise": (
        lambda x: broken_product(2.0 * x, x),
        "it is broken\n  in the backward rule of broken_product for its operand y (cotangent "
        "float32[3]; kept float32[3])",
    ),
    "opaque": (
        broken_copy,
        "it is broken\n  in the backward rule of broken_copy for its operand x (cotangent "
        "float32[3]; kept float32[3])",
    ),
    "custom": (
        broken_function,
        "it is broken\n  in the backward rule of custom_vjp(broken_function) (cotangent "
        "float32[3])",
    ),
}
USES = {
    "grad": lambda f: fdbr.grad(f),
    "jit of grad": lambda f: fdbr.jit(fdbr.grad(f)),
    "grad of jit": lambda f: fdbr.grad(fdbr.jit(f)),
    "vjp": lambda f: lambda x: fdbr.vjp(f, x)[1](np.float32(1.0)),
    "inner": lambda f: fdbr.grad(lambda x: ops.sum(fdbr.grad(f)(x))),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", RULES)
def test_the_error_names_the_operation_the_operand_and_what_the_rule_was_given(kind, use):
    f, message = RULES[kind]
    with pytest.raises(ValueError, match="it is broken") as caught:
        USES[use](lambda x: ops.sum(f(x)))(np.ones(3, np.float32))
    assert str(caught.value).startswith(message)


def test_with_annotations_it_tells_the_line_and_the_operands_shape():
    def f(x):
        y = x[:2] * 2.0
        z = broken_product(x[1:], y)  # here
        return ops.sum(z)

    with debug.annotate(), pytest.raises(ValueError, match="it is broken") as caught:
        fdbr.grad(f)(np.ones(3))
    text = str(caught.value)
    assert "of broken_product for its operand y float64[2] (cotangent float64[2]" in text
    assert "broken_product was applied at test_backward_notes.py" in text
    assert "z = broken_product(x[1:], y)  # here" in text


class Odd(Exception):
    def __str__(self):
        return "odd"


@pytest.mark.parametrize("error", [Odd("a"), KeyError("a"), Odd(), ValueError("a", 1)])
def test_errors_that_make_their_messages_themselves_get_a_note(error):
    def bwd(_, ct):
        raise error

    f = fdbr.custom_vjp(lambda x: x, fwd=lambda x: (x, None), bwd=bwd)
    before = str(error), error.args
    with pytest.raises(type(error)) as caught:
        fdbr.grad(f)(1.0)
    assert caught.value is error
    assert (str(error), error.args) == before
    assert "in the backward rule of custom_vjp(<lambda>)" in error.__notes__[0]


def test_every_rule_of_every_operation_knows_its_operand():
    for name, primitive in registry.items():
        parameters = list(inspect.signature(primitive.value).parameters.values())[1:]
        for number, parameter in enumerate(parameters):
            if parameter.kind is parameter.KEYWORD_ONLY or primitive.rules[number] is None:
                continue
            error = ValueError("broken")
            pull = primitive.rules[number].pull
            blame(error, name, ((0, (), "input"), pull, ()), np.ones(2))
            names = str(error).partition("operand ")[2].partition(" (")[0].split(" or ")
            assert parameter.name in names, (name, number, str(error))
