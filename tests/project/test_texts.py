"""The text of traced values."""

import io
import re
from contextlib import redirect_stdout

import numpy as np
import pytest

import fdbr
from fdbr import ops


def texts(transform, f, *args):
    """What a transformed function makes of the text of what ``f`` gives, in its first run."""
    found = []

    def run(*args):
        x = f(*args)
        found.append((repr(x), str(x), f"{x:.2f}"))
        return ops.sum(x)

    run.__qualname__ = "run"
    transform(run, *args)
    return found[0]


def grad(f, x):
    fdbr.grad(f)(x)


def jvp(f, x):
    fdbr.jvp(f, (x,), (x,))


def vmap(f, x):
    fdbr.vmap(f)(x)


def jit(f, x):
    fdbr.jit(f)(x)


@pytest.mark.parametrize("transform", [grad, jvp])
def test_texts_show_the_numbers_and_that_they_are_traced(transform):
    name = transform.__name__
    double = lambda x: 2 * x
    assert texts(transform, double, 0.75) == (
        f"<traced 1.5 of {name}(run)>",
        "<traced 1.5>",
        "1.50",
    )
    assert texts(transform, double, np.array([0.5, 1.0])) == (
        f"<traced array([1., 2.]) of {name}(run)>",
        "<traced [1. 2.]>",
        "[1.00 2.00]",
    )
    short = texts(transform, double, np.float32(0.5))
    assert short == (f"<traced np.float32(1.0) of {name}(run)>", "<traced 1.0>", "1.00")


def test_under_jit_texts_are_those_that_the_function_itself_makes():
    for x in (0.75, 2, np.array([0.5, 1.0]), np.float32(0.5)):
        f = lambda x: (repr(x), str(x), f"{x}", "%s" % x, len(str(x)) * x)  # noqa: UP031
        jitted = fdbr.jit(f)
        for _ in range(3):
            assert repr(jitted(x)) == repr(f(x))
        assert "makes text" in str(jitted.report())


def test_in_a_batch_they_show_those_of_all_examples():
    assert texts(vmap, lambda x: x, np.array([0.5, 1.0])) == (
        "<traced batch array([0.5, 1. ]) of vmap(run)>",
        "<traced batch [0.5 1. ]>",
        "[0.50 1.00]",
    )
    found = texts(lambda f, x: fdbr.vmap(fdbr.grad(f))(x), lambda x: x * x, np.array([1.0, 2.0]))
    assert found == (
        "<traced batch array([1., 4.]) of grad(run)>",
        "<traced batch [1. 4.]>",
        "[1.00 4.00]",
    )


def test_a_text_read_back_is_no_number_unless_it_was_formatted():
    for transform in (grad, jvp):
        with pytest.raises(ValueError, match="could not convert"):
            transform(lambda x: float(str(x)) * x, 2.0)
        with pytest.raises(ValueError, match="could not convert"):
            transform(lambda x: float(f"{x}") * x, 2.0)


def test_errors_that_name_traced_values_show_no_numbers():
    with pytest.raises(TypeError, match=re.escape("float() of <traced float64[2] of grad(")):
        fdbr.grad(lambda x: float(x))(np.ones(2))


def test_values_of_other_array_modules_have_texts(xp):
    found = texts(grad, lambda x: x + 1, xp.asarray([0.5, 1.0]))
    assert "1.5, 2." in found[0]
    assert found[2] == "[1.50 2.00]"


@pytest.mark.parametrize("show", [print, lambda x: print(f"{x:.1f}"), lambda x: print(repr(x))])
def test_a_function_under_jit_that_prints_prints_what_it_has_at_every_call(show):
    """A replay would print nothing, or old numbers; so there is none."""

    @fdbr.jit
    def f(x):
        y = 2 * x
        show(y)
        return y

    for _ in range(3):
        for number in (1.5, 2.5):
            with redirect_stdout(io.StringIO()) as printed:
                assert f(number) == 2 * number
            assert str(2 * number) in printed.getvalue()
    assert "makes text of a traced value" in str(f.report())
    assert f.programs() == ()


def test_a_text_chooses_the_branch_that_it_chooses_without_jit():
    table = {"1.0": 10.0, "2.0": 20.0}

    @fdbr.jit
    def f(x):
        return x * table[f"{x:.1f}"]

    assert [f(x) for x in (1.0, 2.0, 1.0, 2.0)] == [10.0, 40.0, 10.0, 40.0]


def test_a_gradient_of_a_jitted_function_that_prints_is_right():
    @fdbr.jit
    def f(x):
        y = x * x
        print(y)
        return y

    for number in (1.5, 2.5, 1.5):
        with redirect_stdout(io.StringIO()) as printed:
            assert fdbr.grad(f)(number) == 2 * number
        assert str(number**2) in printed.getvalue()
