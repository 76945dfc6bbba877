"""The namespaces for the Array API suite, whose functions run under a transformation."""

import importlib

import numpy as np
import pytest

from fdbr import ops

X = np.array([[0.5, 1.5, -2.0], [1.0, 0.25, 3.0]])


@pytest.mark.parametrize("name", ["vjp", "jvp", "vmap", "jit"])
def test_a_namespace_has_the_functions_of_the_standard_and_their_results(name):
    xp = importlib.import_module(f"benchmarks.conformance.{name}")
    assert set(dir(ops)) | {"__array_namespace_info__"} <= set(vars(xp))
    np.testing.assert_array_equal(xp.sum(X, axis=0), ops.sum(X, axis=0))
    np.testing.assert_array_equal(xp.concat([X, X]), ops.concat([X, X]))
    np.testing.assert_array_equal(xp.linalg.trace(X), ops.linalg.trace(X))
    np.testing.assert_array_equal(xp.argsort(X), ops.argsort(X))
    assert xp.finfo(X).bits == 64
    assert xp.float32 is np.float32
    for one, expected in zip(xp.unique_all(X), ops.unique_all(X), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_functions_meet_traced_values(monkeypatch):
    met = []
    monkeypatch.setattr(ops, "exp", lambda x: (met.append(type(x).__name__), ops.log(x))[1])
    conformance = importlib.import_module("benchmarks.conformance")
    for name in ("vjp", "jvp", "vmap", "jit"):
        conformance.namespace(name).exp(np.array([1.0, 2.0]))
    assert len(met) == 4
    assert all("Tracer" in kind for kind in met)
