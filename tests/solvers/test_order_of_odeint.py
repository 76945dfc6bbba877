"""The order of the arguments of odeint's function: the state, then the time."""

import functools

import numpy as np
import pytest

import fdbr

TIMES = np.linspace(0.0, 1.0, 3)


def by_time(t, y, rate):
    return -rate * y


class Field:
    def __call__(self, t, state):
        return -state


@pytest.mark.parametrize("y0", [1.0, np.ones(2), {"a": np.ones(2)}])
@pytest.mark.parametrize("method", ["dopri5", "BDF"])
@pytest.mark.parametrize(
    ("func", "args"),
    [
        (lambda t, y: -y, ()),
        (lambda time, x: -x, ()),
        (by_time, (0.5,)),
        (functools.partial(by_time, rate=0.5), ()),
        (Field(), ()),
        (fdbr.jit(lambda t, y: -y), ()),
    ],
)
def test_a_function_of_time_and_state_is_refused(func, args, y0, method):
    with pytest.raises(TypeError, match=r"called as func\(y, t, \*args\).*give lambda"):
        fdbr.odeint(func, y0, TIMES, *args, method=method)


@pytest.mark.parametrize(
    "func",
    [
        lambda y, t: -y,
        lambda y, time: -y,
        lambda y, *rest: -y,
        lambda *both: -both[0],
        lambda t, tau: -t,
        lambda x, y: -x,
    ],
)
def test_other_names_are_taken(func):
    assert abs(fdbr.odeint(func, 1.0, TIMES)[-1] - np.exp(-1)) < 1e-6


def test_shapes_that_do_not_fit_name_the_order():
    with pytest.raises(ValueError, match=r"it returns 1; it is called as func\(y, t, \*args\)"):
        fdbr.odeint(lambda a, b: -b, np.ones(2), TIMES)
    with pytest.raises((TypeError, IndexError)) as caught:
        fdbr.odeint(lambda a, b: [b[1], -b[0]], np.ones(2), TIMES)
    assert "called as func(y, t, *args)" in "".join(caught.value.__notes__)
