"""Parameters that a distribution cannot have are refused where it is made."""

import numpy as np
import pytest

import fdbr
from fdbr import distributions as d
from fdbr import random

KEY = random.key(0)
NAN, INF = float("nan"), float("inf")
ZEROS, EYE = np.zeros(2), np.eye(2)

WRONG = [
    (lambda: d.Normal(0.0, -1.0), "Normal: scale must be positive and finite, got float -1.0"),
    (lambda: d.Normal(0.0, np.array([1.0, -2.0])), r"Normal: scale .* elements from -2 to 1"),
    (lambda: d.Normal(np.array(NAN)), "Normal: loc must be finite, .* nan"),
    (lambda: d.Normal(np.array([0.0, NAN])), "Normal: loc must be finite, .* with NaN"),
    (lambda: d.LogNormal(INF), "LogNormal: loc must be finite"),
    (lambda: d.Cauchy(0.0, 0.0), "Cauchy: scale must be positive"),
    (lambda: d.Gumbel(0.0, INF), "Gumbel: scale must be positive and finite"),
    (lambda: d.Laplace(ZEROS, np.ones(3)), r"Laplace: loc of shape \(2,\) and scale of shape"),
    (lambda: d.Uniform(1.0, 1.0), "Uniform: low must lie below high"),
    (lambda: d.Exponential(0.0), "Exponential: rate must be positive"),
    (lambda: d.Gamma(1.0, -1.0), "Gamma: rate must be positive"),
    (lambda: d.Chi2(np.array([2, 0])), "Chi2: df must be positive"),
    (lambda: d.Pareto(1.0, -1.0), "Pareto: alpha must be positive"),
    (lambda: d.Beta(0.0, 1.0), "Beta: concentration1 must be positive"),
    (lambda: d.Dirichlet(ZEROS), "Dirichlet: concentration must be positive"),
    (lambda: d.Bernoulli(2), r"Bernoulli: probs must be in \[0, 1\], got int 2"),
    (lambda: d.Bernoulli(logits=NAN), "Bernoulli: logits must be numbers"),
    (lambda: d.Geometric(0.0), r"Geometric: probs must be in \(0, 1\]"),
    (lambda: d.Poisson(-1.0), "Poisson: rate must be at least 0"),
    (lambda: d.Categorical(np.array([2.0, -1.0])), "Categorical: probs must be at least 0"),
    (lambda: d.Categorical(ZEROS), "Categorical: probs .* positive sum"),
    (lambda: d.OneHotCategorical(logits=np.array([-INF, -INF])), "OneHotCategorical: logits"),
    (lambda: d.MultivariateNormal(ZEROS, scale_tril=EYE + EYE[::-1]), "lower triangular"),
    (lambda: d.MultivariateNormal(ZEROS, scale_tril=-EYE), "positive diagonal"),
    (lambda: d.MultivariateNormal(ZEROS, covariance_matrix=np.tri(2)), "a symmetric matrix"),
    (lambda: d.MultivariateNormal(ZEROS, covariance_matrix=-EYE), "not positive definite"),
    (lambda: d.MultivariateNormal(ZEROS, covariance_matrix=np.eye(3)), "covariance_matrix must"),
    (
        lambda: d.MultivariateNormal(np.zeros((3, 2)), covariance_matrix=np.stack([EYE, EYE])),
        "loc of shape",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[text[:30] for _, text in WRONG])
def test_a_parameter_outside_its_range_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("value", ["1", [0.0, 1.0], 1j, np.array([1j]), None], ids=repr)
def test_a_parameter_is_a_number_or_an_array(value):
    with pytest.raises(TypeError, match="Normal: loc must"):
        d.Normal(value)


def test_what_lies_on_the_edge_of_a_range_is_taken():
    assert d.Bernoulli(1).mean == 1
    assert d.Bernoulli(logits=-INF).mean == 0
    assert d.Poisson(0).sample(KEY) == 0
    assert d.Categorical(logits=np.array([0.0, -INF])).p.tolist() == [1.0, 0.0]
    assert d.Normal(np.zeros(0), 1.0).sample(KEY).shape == (0,)
    rounded = EYE + np.array([[0.0, 1e-9], [0.0, 0.0]])
    assert d.MultivariateNormal(ZEROS, covariance_matrix=rounded).mean.shape == (2,)


def test_a_traced_parameter_is_looked_at_and_in_a_jitted_function_at_each_call():
    def draw(scale):
        return d.Normal(0.0, scale).sample(KEY)

    jitted = fdbr.jit(draw)
    for scale in (1.0, 2.0, 3.0):
        assert np.isclose(jitted(scale), draw(scale))
    for refuses in (jitted, fdbr.grad(draw), lambda s: fdbr.vmap(draw)(np.array([1.0, s]))):
        with pytest.raises(ValueError, match="scale must be positive"):
            refuses(-1.0)


def test_trees_made_of_a_distribution_are_not_looked_at():
    slope = fdbr.grad(lambda normal: normal.log_prob(0.0))(d.Normal(1.0, 2.0))
    assert slope.scale < 0
