"""Moving arrays between devices is linear: a cotangent moves back."""

import numpy as np
import pytest
import shadow

import fdbr
from fdbr import ops
from fdbr.core import devices
from fdbr.testing import assert_allclose

HOST = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr(devices, "accelerator", lambda: shadow.module)


def on(device, array=HOST):
    return array if device == "cpu" else fdbr.device_put(array, device)


def lies(array, device):
    if device == "cpu":
        return isinstance(array, np.ndarray | np.generic)
    return type(array) is shadow.Array and array.device.id == device


PLACES = ["cpu", 0, 1]
TRANSFORMATIONS = {
    "grad": lambda f, x: fdbr.grad(lambda x: ops.sum(f(x) ** 2))(x),
    "grad of jit": lambda f, x: fdbr.grad(fdbr.jit(lambda x: ops.sum(f(x) ** 2)))(x),
    "jit of grad": lambda f, x: fdbr.jit(fdbr.grad(lambda x: ops.sum(f(x) ** 2)))(x),
}


@pytest.mark.parametrize("start", PLACES)
@pytest.mark.parametrize("end", PLACES)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_gradient_comes_back_to_where_the_argument_lies(name, start, end):
    def f(tree):
        moved = fdbr.device_put({"a": [tree * 2.0], "n": 3}, end)
        return fdbr.device_put(moved["a"][0] * 3.0, end)

    slope = TRANSFORMATIONS[name](f, on(start))
    assert lies(slope, start)
    assert_allclose(fdbr.device_get(slope), 72.0 * HOST)


@pytest.mark.parametrize("start", PLACES)
@pytest.mark.parametrize("end", PLACES)
def test_tangents_batches_and_pullbacks_move_too(start, end):
    x = on(start)
    move = lambda x: fdbr.device_put(ops.sin(x), end)
    value, tangent = fdbr.jvp(move, (x,), (x,))
    assert lies(value, end)
    assert lies(tangent, end)
    assert_allclose(fdbr.device_get(tangent), np.cos(HOST) * HOST)
    batch = fdbr.vmap(move)(on(start, np.stack([HOST, 2 * HOST])))
    assert lies(batch, end)
    assert_allclose(fdbr.device_get(batch), np.sin([HOST, 2 * HOST]))
    out, pullback = fdbr.vjp(move, x)
    (back,) = pullback(out)
    assert lies(out, end)
    assert lies(back, start)
    assert_allclose(fdbr.device_get(back), np.cos(HOST) * np.sin(HOST))
    each = fdbr.vmap(fdbr.grad(lambda x: ops.sum(move(x))))(on(start, np.stack([HOST, 2 * HOST])))
    assert lies(each, start)
    assert_allclose(fdbr.device_get(each), np.cos([HOST, 2 * HOST]))
    second = fdbr.grad(lambda x: ops.sum(fdbr.grad(lambda x: ops.sum(move(x) ** 2))(x)))(x)
    assert lies(second, start)
    assert_allclose(fdbr.device_get(second), 2 * np.cos(2 * HOST))


@pytest.mark.parametrize("start", PLACES)
def test_device_get_brings_traced_values_to_the_host_and_cotangents_back(start):
    def f(x):
        here = fdbr.device_get({"x": x, "text": "kept"})
        assert here["text"] == "kept"
        return ops.sum(here["x"] * HOST)  # which would not mix with arrays of a GPU

    slope = fdbr.grad(f)(on(start))
    assert lies(slope, start)
    assert_allclose(fdbr.device_get(slope), HOST)
    assert_allclose(fdbr.jvp(f, (on(start),), (on(start),))[1], np.sum(HOST * HOST))
    assert_allclose(fdbr.vmap(f)(on(start, np.stack([HOST, HOST]))), [14.0, 14.0])
    assert_allclose(fdbr.jit(f)(on(start)), 14.0)


def test_without_a_device_it_is_the_current_one():
    with shadow.module.cuda.Device(1):
        assert lies(fdbr.device_put(HOST), 1)
        out = fdbr.vjp(lambda x: fdbr.device_put(x), HOST)[0]
    assert lies(out, 1)


def test_numbers_of_python_stay_where_they_are():
    for device in PLACES:
        assert fdbr.grad(lambda x, d=device: fdbr.device_put(x, d) * x)(3.0) == 6.0
        assert fdbr.jit(lambda x, d=device: fdbr.device_put(x, d) * x)(3.0) == 9.0
