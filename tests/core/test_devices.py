"""Arrays on several devices: an operation, forward and backward, runs where its arrays lie."""

import threading

import numpy as np
import pytest
import shadow

import fdbr
from fdbr import ops
from fdbr.testing import assert_allclose

X = np.array([[1.5, -2.0, 0.5], [0.25, 3.0, -1.0]])


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch):
    monkeypatch.setattr(fdbr.core.devices, "accelerator", lambda: shadow.module)


@pytest.fixture
def x():
    """An array on the device that is not the current one."""
    return fdbr.device_put(X, 1)


def lies_there(value):
    leaves = fdbr.tree.leaves(value)
    return all(leaf.device == shadow.Device(1) for leaf in leaves)


MAKERS = {
    "zeros": lambda device: ops.zeros((2, 3), device=device),
    "ones": lambda device: ops.ones(2, device=device),
    "empty": lambda device: ops.empty(2, device=device),
    "full": lambda device: ops.full(2, 7.0, device=device),
    "arange": lambda device: ops.arange(3, device=device),
    "linspace": lambda device: ops.linspace(0.0, 1.0, 3, device=device),
    "eye": lambda device: ops.eye(2, device=device),
    "asarray of a list": lambda device: ops.asarray([1.0, 2.0], device=device),
    "asarray of a NumPy array": lambda device: ops.asarray(X, device=device),
    "zeros_like": lambda device: ops.zeros_like(X, device=device),
    "ones_like": lambda device: ops.ones_like(X, device=device),
    "full_like": lambda device: ops.full_like(X, 7.0, device=device),
    "fftfreq": lambda device: ops.fft.fftfreq(4, device=device),
    "device_put": lambda device: fdbr.device_put(X, device),
    "from_dlpack": lambda device: ops.from_dlpack(X, device=device),
    "astype": lambda device: ops.astype(X, np.float32, device=device),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("device", [1, shadow.Device(1)])
def test_what_is_made_on_a_device_lies_there(name, device):
    assert lies_there(MAKERS[name](device))
    assert type(MAKERS[name]("cpu")) is np.ndarray


FUNCTIONS = {
    "arithmetic": lambda x: (2.0 * x - x**2 / 3).sum(),
    "softmax": lambda x: (ops.log_softmax(x) ** 2).sum(),
    "indices": lambda x: (x[:, np.array([2, 0, 2])] ** 2).sum(),
    "take_along_axis": lambda x: ops.take_along_axis(x, ops.argsort(x), axis=1)[0].sum(),
    "sort": lambda x: (ops.sort(x) ** 2)[:, 0].sum(),
    "scatter": lambda x: (ops.scatter(x, 1, ops.argsort(x), x, reduce="amax") ** 2).sum(),
    "set": lambda x: (ops.at(x)[0].set(x[1]) ** 2).sum(),
    "products": lambda x: (x @ x.T).sum() + ops.einsum("ij,kj->", x, x),
    "linalg": lambda x: ops.linalg.det(x @ x.T) + ops.linalg.solve(x @ x.T, x).sum(),
    "attention": lambda x: ops.scaled_dot_product_attention(x, x, x, causal=True).sum(),
    "padding": lambda x: (ops.pad(x, 1, mode="linear_ramp") ** 2).sum(),
    "stacked": lambda x: (ops.stack([row * 2 for row in x]) ** 2).sum(),
    "cumulative": lambda x: (ops.cumulative_sum(x, axis=1) ** 2).sum(),
    "cross entropy": lambda x: ops.softmax_cross_entropy(x, np.array([0, 2])),
    "dropout": lambda x: ops.dropout(x, 0.5, key=fdbr.random.key(0)).sum(),
    "convolution": lambda x: ops.convolve(x[0], x[1]).sum() ** 2,
    "special": lambda x: ops.gammaln(ops.abs(x)).sum(),
    "control flow": lambda x: (x if x.sum() > 100 else x**3).sum(),
    "used again": lambda x: (x * x + x * 3 + x).sum() * x.sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_lie_where_the_arguments_lie(name, x):
    f = FUNCTIONS[name]
    for transformed in (
        fdbr.grad(f),
        fdbr.value_and_grad(f),
        lambda x: fdbr.jvp(f, (x,), (x,)),
        lambda x: fdbr.vmap(f)(ops.stack([x, x])),
        lambda x: fdbr.vmap(fdbr.grad(f))(ops.stack([x, x])),
        lambda x: fdbr.grad(lambda x: (fdbr.grad(f)(x) * x).sum())(x),
        fdbr.jit(fdbr.grad(f)),
        fdbr.hessian(lambda x: f(x)),
    ):
        out = transformed(x)
        assert lies_there(out)
        assert_allclose(fdbr.device_get(out), transformed(X))


def test_a_pullback_runs_where_its_arrays_lie_in_any_thread(x):
    with shadow.Device(1):
        _, pullback = fdbr.vjp(lambda x: (x[:, np.array([0, 0])] * 2.0).sum(), x)
    gradients = []
    thread = threading.Thread(target=lambda: gradients.append(pullback(1.0)[0]))
    thread.start()
    thread.join()
    gradients += pullback(1.0)
    assert lies_there(gradients)
    assert lies_there(pullback(None))


def test_a_model_on_two_devices(x):
    y = fdbr.device_put(X, 0)

    def moved(x, y):
        return (x * 2).to_device(0) * y

    out, pullback = fdbr.vjp(lambda x, y: moved(x, y).sum(), x, y)
    there, here = pullback(1.0)
    assert lies_there(there)
    assert here.device == out.device == shadow.Device(0)
    assert_allclose(fdbr.device_get((there, here)), (2 * X, 2 * X))


def test_operands_on_different_devices_are_an_error_that_names_them(x):
    y = fdbr.device_put(X, 0)
    for f in (ops.add, ops.maximum, lambda x, y: fdbr.grad(lambda x: (x * y).sum())(x)):
        with pytest.raises(ValueError, match=r"fdbr\.ops\.\w+: .*devices \[0, 1\].*device_put"):
            f(x, y)


DRAWS = {
    "normal": lambda key, **kw: fdbr.random.normal(key, (5,), **kw),
    "uniform": lambda key, **kw: fdbr.random.uniform(key, (5,), "float32", 1.0, 2.0, **kw),
    "truncated_normal": lambda key, **kw: fdbr.random.truncated_normal(key, -1, 1, (5,), **kw),
    "bernoulli": lambda key, **kw: fdbr.random.bernoulli(key, 0.25, (5,), **kw),
    "randint": lambda key, **kw: fdbr.random.randint(key, (5,), 0, 9, **kw),
    "permutation": lambda key, **kw: fdbr.random.permutation(key, 5, **kw),
    "choice": lambda key, **kw: fdbr.random.choice(key, 5, (3,), replace=False, **kw),
    "bits": lambda key, **kw: fdbr.random.bits(key, (5,), **kw),
}
FOLLOWING = {
    "categorical": lambda key, x: fdbr.random.categorical(key, x),
    "bernoulli": lambda key, x: fdbr.random.bernoulli(key, abs(x) / 4),
    "uniform": lambda key, x: fdbr.random.uniform(key, x.shape, minval=x, maxval=x + 1),
    "permutation": lambda key, x: fdbr.random.permutation(key, x, axis=1),
    "choice": lambda key, x: fdbr.random.choice(key, x, (2,), axis=1),
    "dropout": lambda key, x: ops.dropout(x, 0.5, key=key),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_lie_on_the_device_asked_for_and_are_the_same_everywhere(name):
    key = fdbr.random.key(3)
    draws = DRAWS[name](key, device=1)
    assert lies_there(draws)
    assert lies_there(DRAWS[name](fdbr.device_put(key, 1)))
    assert type(DRAWS[name](key)) is np.ndarray
    assert_allclose(fdbr.device_get(draws), DRAWS[name](key), rtol=1e-14)
    keys = fdbr.random.split(key, 2)
    batch = fdbr.vmap(lambda key: DRAWS[name](key, device=1))(keys)
    assert lies_there(batch)
    assert_allclose(fdbr.device_get(batch[1]), DRAWS[name](keys[1]), rtol=1e-14)


@pytest.mark.parametrize("name", FOLLOWING)
def test_draws_follow_their_arguments_with_a_key_in_host_memory(name, x):
    key = fdbr.random.key(3)
    with shadow.Device(1):
        draws = FOLLOWING[name](key, x)
    assert lies_there(draws)
    assert_allclose(fdbr.device_get(draws), FOLLOWING[name](key, X))


def test_a_draw_launches_one_kernel_for_its_words_and_never_waits():
    if not hasattr(shadow.module, "ElementwiseKernel"):
        pytest.skip("there is no C++ compiler to compile kernels for the host")
    key = fdbr.random.key(2**100 + 5)
    for count in (1, 7, 10_000):
        with shadow.counting() as tally:
            words = fdbr.random.bits(key, (count,), device=0)
        # The key is brought, its first block is set, memory is taken, and the kernel fills it.
        assert (tally.launches, tally.waits) == (4, 0)
        assert (words.get() == fdbr.random.bits(key, (count,))).all()
    with shadow.counting() as tally:
        fdbr.random.normal(key, (1000,), "float32", device=0)
    assert tally.launches <= 12
    assert tally.waits == 0
