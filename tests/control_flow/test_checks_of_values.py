"""Checks of values in the body of a compiled loop: gathered, and read once after the loop."""

from typing import Any

import numpy as np
import pytest

import fdbr
from fdbr import distributions as D
from fdbr import ops, random

X = np.linspace(0.2, 0.8, 12)
KEY = random.key(0)

FAMILIES = [
    (lambda p: D.Bernoulli(p), 1.0),
    (lambda p: D.Bernoulli(logits=p), 1.0),
    (lambda p: D.Beta(p, p + 1), 0.5),
    (lambda p: D.Categorical(ops.stack([p, 1 - p])), 1),
    (lambda p: D.Categorical(logits=ops.stack([p, 1 - p])), 1),
    (lambda p: D.Cauchy(p, p + 1), 0.5),
    (lambda p: D.Chi2(p), 0.5),
    (lambda p: D.Dirichlet(ops.stack([p, 1 - p])), np.array([0.5, 0.5])),
    (lambda p: D.Exponential(p), 0.5),
    (lambda p: D.Gamma(p, p + 1), 0.5),
    (lambda p: D.Geometric(p), 2.0),
    (lambda p: D.Gumbel(p, p + 1), 0.5),
    (lambda p: D.Independent(D.Normal(ops.stack([p, p]), p), 1), np.array([0.5, 0.5])),
    (lambda p: D.Laplace(p, p + 1), 0.5),
    (lambda p: D.LogNormal(p, p + 1), 0.5),
    (
        lambda p: D.MultivariateNormal(ops.stack([p, p]), covariance_matrix=np.eye(2) * p),
        np.array([0.5, 0.5]),
    ),
    (lambda p: D.Normal(p, p + 1), 0.5),
    (lambda p: D.OneHotCategorical(ops.stack([p, 1 - p])), np.array([1.0, 0.0])),
    (lambda p: D.Pareto(p, p + 1), 2.0),
    (lambda p: D.Poisson(p), 2.0),
    (lambda p: D.Uniform(p, p + 1), 0.9),
]


@pytest.mark.parametrize(("family", "value"), FAMILIES)
def test_distributions_in_a_scan_leave_it_a_compiled_loop(family: Any, value: Any) -> None:
    def run(x: Any) -> Any:
        def body(total: Any, p: Any) -> Any:
            d = family(p)
            sample = ops.astype(ops.sum(d.sample(KEY)), float)
            return total + d.log_prob(value) + sample, None

        return fdbr.scan(body, np.float64(0), x)[0]

    jitted = fdbr.jit(run)
    np.testing.assert_allclose(jitted(X), run(X), rtol=1e-10)
    np.testing.assert_allclose(jitted(X), run(X), rtol=1e-10)
    assert "iteration by iteration" not in str(jitted.report())


LABELS = np.array([[0, 2, 1], [1, 1, 0], [2, 0, 0], [0, 0, 1]])
LOGITS = np.linspace(-1, 1, 36).reshape(4, 3, 3) ** 2

LABELLED = [
    lambda x, n: ops.softmax_cross_entropy(x, n),
    lambda x, n: ops.nll_loss(ops.log_softmax(x), n),
    lambda x, n: ops.multi_margin_loss(x, n),
    lambda x, n: ops.accuracy(x, n),
    lambda x, n: ops.sum(ops.one_hot(n, 3) * x),
    lambda x, n: ops.sum(ops.take(x[0], n)),
    lambda x, n: ops.soft_margin_loss(x[:, 0], 2 * (n > 0) - 1 + 0 * n),
    lambda x, n: ops.binary_cross_entropy(ops.abs(x), ops.abs(x)) + 0 * ops.sum(n),
    lambda x, n: random.uniform(KEY, (), np.float64, 0.0, 1.0 + n[0]),
    lambda x, n: random.gamma(KEY, 1.0 + n[0]),
    lambda x, n: ops.astype(random.poisson(KEY, 1.0 + n[0]), float),
    lambda x, n: ops.astype(random.choice(KEY, 3, p=ops.softmax(x[0])), float),
    lambda x, n: np.quantile(x, ops.softmax(x[0])[0]),
]


@pytest.mark.parametrize("function", LABELLED)
def test_functions_that_check_values_leave_a_scan_a_compiled_loop(function: Any) -> None:
    def run(logits: Any, labels: Any) -> Any:
        def body(total: Any, row: Any) -> Any:
            return total + function(*row), None

        return fdbr.scan(body, np.float64(0), (logits, labels))[0]

    jitted = fdbr.jit(run)
    np.testing.assert_allclose(jitted(LOGITS, LABELS), run(LOGITS, LABELS), rtol=1e-10)
    assert "iteration by iteration" not in str(jitted.report())


@pytest.mark.parametrize("label", [3, -1, 10**9, -(10**12)])
def test_a_label_that_is_out_of_range_in_one_iteration_raises_the_error(label: int) -> None:
    def run(labels: Any) -> Any:
        def body(total: Any, row: Any) -> Any:
            return total + ops.softmax_cross_entropy(*row), None

        return fdbr.scan(body, np.float64(0), (LOGITS, labels))[0]

    jitted, wrong = fdbr.jit(run), LABELS.copy()
    wrong[2, 1] = label
    assert jitted(LABELS) == pytest.approx(run(LABELS))
    with pytest.raises(ValueError, match="for 3 classes"):
        jitted(wrong)
    assert jitted(LABELS) == pytest.approx(run(LABELS))


def total(x: Any) -> Any:
    """A scan that checks a parameter that differs between iterations."""

    def body(total: Any, p: Any) -> Any:
        return total + D.Normal(0.0, p).log_prob(1.0), p * 2

    return fdbr.scan(body, np.float64(0), x)


def test_an_invalid_parameter_in_one_iteration_raises_the_error() -> None:
    jitted, wrong = fdbr.jit(total), np.where(np.arange(12) == 5, -1, X)
    np.testing.assert_allclose(jitted(X)[0], total(X)[0])
    np.testing.assert_array_equal(jitted(X)[1], 2 * X)  # no flag among the results
    with pytest.raises(ValueError, match="scale must be positive"):
        jitted(wrong)
    with pytest.raises(ValueError, match="scale must be positive"):
        fdbr.jit(total)(wrong)
    np.testing.assert_allclose(jitted(X)[0], total(X)[0])


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: fdbr.grad(f),
        lambda f: fdbr.hessian(f),
        lambda f: lambda s: fdbr.jvp(f, (s,), (1.0,))[1],
        lambda f: lambda s: fdbr.vmap(f)(ops.stack([s, 2 * s])),
        lambda f: lambda s: fdbr.vmap(fdbr.grad(f))(ops.stack([s, 2 * s])),
        lambda f: fdbr.checkpoint(f),
        lambda f: fdbr.grad(fdbr.checkpoint(f)),
        lambda f: fdbr.jit(f),
    ],
)
def test_checks_in_loops_under_transformations(transformed: Any) -> None:
    function = transformed(lambda s: total(s * X)[0])
    jitted = fdbr.jit(function)
    np.testing.assert_allclose(jitted(1.5), function(1.5), rtol=1e-9)
    assert "iteration by iteration" not in str(jitted.report())
    with pytest.raises(ValueError, match="scale must be positive"):
        jitted(-1.0)


def test_checks_in_a_while_loop_end_it() -> None:
    def run(n: Any) -> Any:
        def body(state: Any) -> Any:
            i, total = state
            return i + 1, total + D.Normal(0.0, 5.0 - i).log_prob(1.0)

        return fdbr.while_loop(lambda state: state[0] < n, body, (np.float64(0), np.float64(0)))[1]

    jitted = fdbr.jit(run)
    for n in (0.0, 1.0, 5.0):
        np.testing.assert_allclose(jitted(n), run(n))
    assert "iteration by iteration" not in str(jitted.report())
    for n in (6.0, np.inf):
        with pytest.raises(ValueError, match="scale must be positive"):
            jitted(n)


def test_checks_in_nested_loops() -> None:
    def run(x: Any) -> Any:
        def inner(total: Any, p: Any) -> Any:
            return total + D.Normal(0.0, p).log_prob(1.0), None

        def outer(total: Any, p: Any) -> Any:
            each = fdbr.scan(inner, total, p + np.array([0.0, 0.1]))[0]
            return fdbr.fori_loop(
                1, 3, lambda i, t: t + D.Gamma(p * i, 1.0).log_prob(2.0), each
            ), None

        return fdbr.scan(outer, np.float64(0), x)[0]

    jitted = fdbr.jit(run)
    np.testing.assert_allclose(jitted(X), run(X), rtol=1e-10)
    assert "iteration by iteration" not in str(jitted.report())
    with pytest.raises(ValueError, match="must be positive"):
        jitted(X - 0.5)


def test_one_example_with_an_invalid_parameter_raises_the_error() -> None:
    batched = fdbr.vmap(lambda s: total(s * X)[0])
    for function in (batched, fdbr.jit(batched)):
        function(np.array([1.0, 2.0]))
        with pytest.raises(ValueError, match="scale must be positive"):
            function(np.array([1.0, -2.0]))


def test_a_loop_of_more_iterations_than_a_program_may_have_steps_is_compiled() -> None:
    jitted = fdbr.jit(lambda x: total(x)[0])
    x = np.full(60_000, 0.5)
    np.testing.assert_allclose(jitted(x), 60_000 * D.Normal(0.0, 0.5).log_prob(1.0))
    assert "iteration by iteration" not in str(jitted.report())
