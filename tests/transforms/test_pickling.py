"""Functions that transformations make of importable functions can be pickled."""

import functools
import inspect
import multiprocessing
import pickle

import numpy as np
import pytest

import fdbr
from fdbr import ops


def cube(x):
    return ops.sum(x**3)


def with_aux(x, y):
    return ops.sum(x * y), {"y": y}


X = np.array([1.0, 2.0])
TRANSFORMED = {
    "grad": (fdbr.grad(cube), (X,)),
    "grad of NumPy's function": (fdbr.grad(np.sin), (0.5,)),
    "grad with settings": (fdbr.grad(with_aux, argnums=(0, 1), has_aux=True), (X, X)),
    "value_and_grad": (fdbr.value_and_grad(cube), (X,)),
    "vmap": (fdbr.vmap(with_aux, in_axes=(0, None)), (X[None], X)),
    "jit": (fdbr.jit(cube), (X,)),
    "jit with settings": (fdbr.jit(cube), (X,)),
    "jacfwd": (fdbr.jacfwd(ops.sin), (X,)),
    "jacrev": (fdbr.jacrev(with_aux, 1, True), (X, X)),
    "hessian": (fdbr.hessian(cube), (X,)),
    "checkpoint": (fdbr.checkpoint(cube), (X,)),
    "grad of checkpoint": (fdbr.grad(fdbr.checkpoint(cube)), (X,)),
    "jit of grad": (fdbr.jit(fdbr.grad(cube)), (X,)),
    "grad of jit": (fdbr.grad(fdbr.jit(cube)), (X,)),
    "vmap of grad": (fdbr.vmap(fdbr.grad(np.sin)), (X,)),
    "grad of grad": (fdbr.grad(fdbr.grad(np.sin)), (0.5,)),
    "grad of a partial": (fdbr.grad(functools.partial(with_aux, y=X), has_aux=True), (X,)),
}


def assert_same(a, b):
    for one, other in zip(fdbr.tree.leaves(a), fdbr.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transformed_function_is_pickled(name):
    f, args = TRANSFORMED[name]
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        again = pickle.loads(pickle.dumps(f, protocol))
        assert_same(again(*args), f(*args))


def test_transformed_functions_are_sent_to_a_spawned_process():
    functions = [fdbr.grad(cube), fdbr.jit(fdbr.vmap(fdbr.grad(np.sin)))]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for f in functions:
            np.testing.assert_array_equal(pool.apply_async(f, (X,)).get(timeout=600), f(X))


def test_a_transformed_function_of_a_local_function_is_refused_by_pickle():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(fdbr.grad(lambda x: x))


def test_a_transformed_function_looks_like_the_function():
    f = fdbr.grad(with_aux, has_aux=True)
    assert inspect.signature(f) == inspect.signature(with_aux)
    assert (f.__name__, f.__module__) == (with_aux.__name__, with_aux.__module__)


def test_a_transformed_function_in_a_class_is_a_method():
    class Model:
        slope = 2.0

        def energy(self, x):
            return self.slope * x**2

        force = fdbr.grad(energy, argnums=1)

    assert Model().force(3.0) == 12.0
