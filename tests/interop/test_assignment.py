"""Writing into arrays: the last line of the traceback says what to write instead."""

import traceback

import numpy as np
import pytest

import fdbr
from fdbr import ops

X = np.array([1.0, 2.0, 3.0])

CASES = {
    "an element": (0, lambda x: x[0]),
    "an element of two axes": ((0, 1), lambda x: x[0]),
    "a part": (slice(1, None), lambda x: x[1:]),
    "a mask": (np.array([True, False, True]), lambda x: x[X > 1]),
    "places": (np.array([2, 0]), lambda x: x[:2]),
    "all": (..., lambda x: x),
}


def last_line(f, transform):
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        transform(f)(X)
    return traceback.format_exception(caught.value)[-1].splitlines()[-1]


TRANSFORMS = {
    "grad": fdbr.grad,
    "jvp": lambda f: lambda x: fdbr.jvp(f, (x,), (x,)),
    "grad of jit": lambda f: fdbr.grad(fdbr.jit(f)),
    "vmap of grad": lambda f: lambda x: fdbr.vmap(fdbr.grad(f))(np.stack([x, x])),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex128])
@pytest.mark.parametrize("case", CASES)
def test_assignment_into_an_array_says_what_to_write(case, dtype, transform):
    key, part = CASES[case]

    def f(x):
        o = np.zeros((3, 3) if type(key) is tuple else 3, dtype)
        o[key] = part(x)
        return np.sum(np.real(o))

    assert "ops.at(B)[key].set(x)" in last_line(f, transform)


@pytest.mark.parametrize("make", [np.zeros_like, np.ones_like, np.empty_like])
def test_arrays_made_like_traced_ones_are_plain_arrays_to_write_to(make):
    def f(x):
        o = make(x)
        o[:] = 0.0
        o[1] = 5.0
        return np.sum(o * x)

    assert fdbr.grad(f)(X).tolist() == [0.0, 5.0, 0.0]
    assert fdbr.grad(fdbr.jit(f))(X).tolist() == [0.0, 5.0, 0.0]

    def g(x):
        o = make(x)
        o[0] = x[0]
        return o

    assert "ops.at(B)[key].set(x)" in last_line(g, fdbr.grad)


@pytest.mark.parametrize(
    ("f", "advice"),
    [
        (lambda x: np.zeros(3).__iadd__(x), "write x = x + y"),
        (lambda x: np.ones(3)[1:].__imul__(x[1:]), "ops.at(x)[key].add(y)"),
        (lambda x: np.copyto(np.zeros(3), x), "ops.where(where, src, dst)"),
        (lambda x: np.put(np.zeros(3), 0, x[0]), ".set(v)"),
        (lambda x: np.array([x[0], 1.0]), "ops.stack"),
        (lambda x: x.__setitem__(0, 1.0), "x.at[key].set(value)"),
        (lambda x: x.fill(1.0), "ops.full_like"),
        (lambda x: setattr(x, "shape", (3, 1)), "x = x.reshape(shape)"),
        (lambda x: setattr(x, "dtype", np.float32), "x = x.astype(dtype)"),
        (lambda x: setattr(x, "real", 1.0), "x.imag"),
        (lambda x: setattr(x, "imag", 1.0), "x.real"),
        (lambda x: setattr(x, "flat", 1.0), "ops.full_like"),
        (lambda x: np.zeros(3).fill(x[0]), "ops.at(B)[key].set(x)"),
        (lambda x: np.zeros(3).flat.__setitem__(0, x[0]), "ops.at(ops.reshape(B, -1))[i].set(x)"),
        (lambda x: np.fromiter((v for v in x), float), "ops.at(B)[key].set(x)"),
        (lambda x: ops.zeros_like(x).__setitem__(0, 1.0), "ops.at(B)[key].set(x)"),
        (lambda x: np.floor(x).__setitem__(0, 1.0), "B = B.copy()"),
    ],
)
def test_every_other_way_to_write_says_what_to_write(f, advice):
    assert advice in last_line(f, fdbr.grad)


def test_a_ufunc_of_somebody_else_is_called_by_its_own_name():
    double = np.frompyfunc(lambda v: 2 * v, 1, 1)
    assert last_line(double, fdbr.grad).startswith("TypeError: <lambda> (vectorized) of a traced")


def test_the_advice_works():
    def f(x):
        o = ops.at(np.zeros_like(x))[0].set(x[0] ** 2)
        return np.sum(ops.at(o)[1:].add(x[1:] * 3.0))

    assert fdbr.grad(f)(X).tolist() == [2.0, 3.0, 3.0]


def test_a_value_whose_assignment_failed_is_what_it_was():
    def f(x):
        o, y = np.zeros(3), x[0]
        with pytest.raises(TypeError, match="assignment"):
            o[0] = y
        assert isinstance(y, fdbr.core.tracer.Tracer)
        total = 2.0 + y
        with pytest.raises(TypeError, match="assignment"):
            o[0] = y
        return total * y + np.sin(y) + y[()] + y[None][0] + ops.stack([y])[0]

    assert fdbr.grad(f)(X)[0] == pytest.approx(2 + 2 + np.cos(1.0) + 3)
