"""Activations, layers around others and small layers: by formulas, and what they refuse."""

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, random, tree
from fdbr.testing import assert_allclose

KEY = random.key(3)
X = np.random.default_rng(0).normal(size=(4, 3))

# --- activations --------------------------------------------------------------------


def test_gelu_knows_the_words_of_jax_and_of_pytorch():
    exact, rough = ops.gelu(X), ops.gelu(X, approximate=True)
    assert (exact != rough).any()
    assert (ops.gelu(X, approximate="none") == ops.gelu(X, approximate=False)).all()
    assert (ops.gelu(X, approximate="none") == exact).all()
    assert (ops.gelu(X, approximate="tanh") == rough).all()
    with pytest.raises(ValueError, match=r"approximate must be True or 'tanh'.*not 'erf'"):
        ops.gelu(X, approximate="erf")


def test_calls_by_pytorchs_names_work():
    images = np.random.default_rng(0).normal(size=(2, 4, 3))
    same = [
        (ops.dropout(X, p=0.25, key=KEY), ops.dropout(X, 0.25, key=KEY)),
        (ops.alpha_dropout(X, p=0.25, key=KEY), ops.alpha_dropout(X, 0.25, key=KEY)),
        (ops.spatial_dropout(X, p=0.25, key=KEY), ops.spatial_dropout(X, 0.25, key=KEY)),
        (ops.group_norm(images, num_groups=2), ops.group_norm(images, 2)),
        (ops.layer_norm(images, normalized_shape=(4, 3)), ops.layer_norm(images, axis=(1, 2))),
        (ops.rms_norm(X, normalized_shape=3), ops.rms_norm(X)),
        (ops.local_response_norm(X, 3, 0.5, 0.5, 2.0), X / (2 + near(X) / 6) ** 0.5),
        (ops.softplus(X, 2.0), ops.softplus(2 * X) / 2),
        (ops.normalize(X, 1.0, 0), X / np.abs(X).sum(0)),
    ]
    for found, expected in same:
        assert_allclose(found, expected, rtol=1e-12)
    for name in ("layer_norm", "rms_norm"):
        with pytest.raises(ValueError, match=r"must end in normalized_shape \(4,\)"):
            getattr(ops, name)(X, normalized_shape=4)


def near(x):
    """The sums of three squares along the second axis."""
    squares = np.pad(x * x, ((0, 0), (1, 1)))
    return squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]


def test_chainers_defaults_can_be_given():
    assert_allclose(ops.leaky_relu(X, 0.2), np.where(X > 0, X, 0.2 * X))
    assert_allclose(ops.leaky_relu(X, slope=0.2), ops.leaky_relu(X, negative_slope=0.2))
    assert_allclose(ops.hard_sigmoid(X, slope=0.2), np.clip(0.2 * X + 0.5, 0, 1))
    responses = ops.local_response_norm(X, 5, k=2, average=False)
    assert_allclose(responses, X / (2 + 1e-4 * (X**2).sum(1, keepdims=True)) ** 0.75)


def test_large_arguments_neither_overflow_nor_lose_their_sign():
    for dtype, large in (("float32", 1e30), ("float64", 1e200)):
        x = np.array([-large, large], dtype)
        with np.errstate(all="raise", under="ignore"):
            for name in ("hard_sigmoid", "sparse_plus", "softplus", "swish", "squareplus"):
                out, slope = fdbr.jvp(getattr(ops, name), (x,), (np.ones_like(x),))
                limits = [0, 1] if name == "hard_sigmoid" else [0, large]
                assert_allclose(out, np.array(limits, dtype), rtol=1e-6, atol=1e-6)
                last = 0 if name == "hard_sigmoid" else 1
                assert_allclose(slope, np.array([0, last], dtype), atol=1e-6)


def test_nan_stays_and_infinite_arguments_have_derivatives():
    x = np.array([-np.inf, np.inf, np.nan])
    with np.errstate(invalid="ignore"):
        for name in ("hard_shrink", "soft_shrink", "hard_sigmoid", "hard_tanh", "hard_swish"):
            assert np.isnan(getattr(ops, name)(x)[2])
        assert fdbr.grad(lambda x: ops.hard_swish(x).sum())(x)[:2].tolist() == [0, 1]


def test_settings_that_are_numbers_of_numpy_leave_the_dtype():
    x, third = X.astype(np.float32), np.float64(1 / 3)
    for f in (
        lambda x: ops.local_response_norm(x, 3, alpha=third, beta=third, k=third),
        lambda x: ops.normalize(x, eps=third, add_eps=True),
        lambda x: ops.batch_norm(x, mean=x[0], variance=x[0] ** 2, eps=third)[0],
        lambda x: ops.batch_norm(x, eps=third)[0],
        lambda x: ops.softplus(x, beta=third, threshold=third),
        lambda x: ops.leaky_relu(x, third),
        lambda x: ops.hard_sigmoid(x, slope=third),
        lambda x: ops.hard_tanh(x, -third, third),
        lambda x: ops.threshold(x, third, third),
        lambda x: ops.soft_shrink(x, third),
        lambda x: ops.elu(x, third),
        lambda x: ops.rrelu(x, third, third, key=KEY),
        lambda x: ops.gumbel_softmax(x, third, key=KEY),
        lambda x: ops.dropout(x, third, key=KEY),
        lambda x: ops.alpha_dropout(x, third, key=KEY),
        lambda x: ops.gaussian_dropout(x, third, key=KEY),
    ):
        assert f(x).dtype == fdbr.grad(lambda x, f=f: f(x).sum())(x).dtype == np.float32


@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [
        (lambda x: ops.hard_tanh(x, 0.0, 2.0), 2.0, 0),
        (lambda x: ops.clipped_relu(x, 2.0), 0.0, 0),
        (ops.hard_sigmoid, 3.0, 0),
        (ops.hard_swish, 3.0, 1),
        (ops.hard_swish, -3.0, 0),
        (ops.hard_shrink, 0.5, 0),
        (ops.soft_shrink, -0.5, 0),
        (ops.sparse_plus, 1.0, 1),
        (lambda x: ops.threshold(x, 1.0, 5.0), 1.0, 0),
        (lambda x: ops.prelu(x, np.float64(0.25)), 0.0, 0.25),
        (lambda x: ops.softplus(x, beta=2, threshold=1), 4.0, 1),
    ],
)
def test_at_kinks_the_derivative_is_that_of_a_neighbour(f, x, slope):
    assert fdbr.grad(f)(x) == slope


def test_log1mexp_keeps_its_digits_at_both_ends():
    x = np.array([1e-20, 1e-5, 0.5, 1.0, 40.0, 700.0])
    expected = [np.log(-np.expm1(-t)) if t < 30 else -np.exp(-t) for t in x]
    assert_allclose(ops.log1mexp(x), np.array(expected), rtol=1e-14)
    with np.errstate(all="ignore"):
        assert ops.log1mexp(np.array([0.0])) == -np.inf


def test_a_zero_vector_has_a_gradient():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert ops.normalize(x).tolist() == [[0, 0], [0.6, 0.8]]
    for settings in ({"eps": 0.5}, {"eps": 0.5, "add_eps": True}):
        slope = fdbr.grad(lambda x, s=settings: ops.normalize(x, **s).sum())(x)
        assert slope[0].tolist() == [2, 2]


def test_sparse_probabilities_add_up_to_one_and_are_nearest():
    p = ops.sparsemax(3 * X)
    assert_allclose(p.sum(-1), np.ones(4))
    assert (p == 0).any()
    assert (p >= 0).all()
    others = np.random.default_rng(1).dirichlet(np.ones(3), (200, 4))
    assert (((others - 3 * X) ** 2).sum(-1) >= ((p - 3 * X) ** 2).sum(-1) - 1e-12).all()
    pair = ops.sparsemax(np.stack([X, 0 * X], axis=-1))[..., 0]
    assert_allclose(pair, ops.sparse_sigmoid(X), atol=1e-12)


# --- layers around others -----------------------------------------------------------


def test_spectral_norm_comes_to_one_while_inference_leaves_the_vectors():
    inner = nn.Conv.init(KEY, 2, 4, (3,), dtype=float)
    first = layer = nn.SpectralNorm.init(KEY, inner)
    x = np.ones((1, 2, 5))
    assert layer(x).shape == (1, 4, 3)
    for _ in range(50):
        _, layer = layer.train(x)
    assert_allclose(np.linalg.norm(layer.plain().weight.reshape(4, -1), 2), 1.0, rtol=1e-10)
    assert (layer.layer.weight == inner.weight).all()
    assert (layer.u != first.u).any()


def test_vectors_of_spectral_norm_are_constants_of_the_gradient():
    layer = nn.SpectralNorm.init(KEY, nn.Linear.init(KEY, 3, 2, dtype=float))
    gradient = fdbr.grad(lambda layer: (layer.train(X)[0] ** 2).sum())(layer)
    assert gradient.u is None
    u, v = layer.train(X)[1].u, layer.train(X)[1].v
    plain = fdbr.grad(lambda w: ((X @ (w / (u @ w @ v)).T) ** 2).sum())(layer.layer.weight)
    assert_allclose(gradient.layer.weight, plain, rtol=1e-10)


def test_a_gamma_begins_at_the_largest_singular_value():
    inner = nn.Linear.init(KEY, 3, 2, dtype=float)
    layer = nn.SpectralNorm.init(KEY, inner, use_gamma=True)
    assert_allclose(layer.gamma, np.linalg.norm(inner.weight, 2))
    assert_allclose(layer(X), inner(X), rtol=1e-3, atol=1e-3)


def test_wrappers_hand_keys_and_successors_on():
    body = nn.SimplifiedDropconnect.init(KEY, 3, 2, dtype=float)
    layer = nn.WeightNorm.init(None, body)
    y, successor = layer.train(X, key=KEY)
    assert_allclose(y, body.train(X, key=KEY)[0], rtol=1e-10)
    assert tree.structure(successor) == tree.structure(layer)
    assert successor == layer


def test_wrappers_take_pytorchs_state_of_before_and_after_parametrizations():
    state = {"bias": np.zeros(2), "weight_g": np.ones((2, 1)), "weight_v": np.ones((2, 3))}
    layer = nn.WeightNorm.init(None, nn.Linear.init(KEY, 3, 2, dtype=float))
    loaded = nn.load_torch_state(layer, state)
    assert_allclose(loaded.plain().weight, np.full((2, 3), 3**-0.5))
    new = nn.save_torch_state(loaded)
    assert set(new) == {"bias", *(f"parametrizations.weight.original{i}" for i in (0, 1))}
    assert nn.load_torch_state(layer, new) == loaded
    layer = nn.Sequential(nn.SpectralNorm.init(KEY, nn.Linear.init(KEY, 3, 2, dtype=float)))
    names = {"0.bias", "0.parametrizations.weight.original"}
    names |= {f"0.parametrizations.weight.0._{vector}" for vector in "uv"}
    assert set(nn.save_torch_state(layer)) == names


def test_standardized_weights_have_mean_0_and_variance_1():
    layer = nn.WeightStandardization.init(None, nn.Conv.init(KEY, 2, 3, 3, dtype=float), eps=0.0)
    weight = layer.plain().weight.reshape(3, -1)
    assert_allclose(weight.mean(1), np.zeros(3), atol=1e-12)
    assert_allclose(weight.var(1), np.ones(3), rtol=1e-10)


# --- small layers -------------------------------------------------------------------


def test_a_highway_hands_on_most_of_its_input_at_first():
    layer = nn.Highway.init(KEY, 3, dtype=float)
    gate = 1 / (1 + np.exp(-(X @ layer.transform.weight.T - 1)))
    plain = np.maximum(X @ layer.plain.weight.T, 0)
    assert_allclose(layer(X), gate * plain + (1 - gate) * X, rtol=1e-10)


def test_maxout_takes_the_largest_of_what_belongs_to_each_output():
    layer = nn.Maxout.init(KEY, 3, 2, 4, dtype=float)
    assert_allclose(layer(X), layer.linear(X).reshape(4, 2, 4).max(-1))


def test_a_bilinear_layer_takes_two_inputs_or_a_pair():
    layer = nn.Bilinear.init(KEY, 3, 3, 2, linear_terms=True)
    assert_allclose(layer((X, 2 * X)), layer(X, 2 * X))
    assert layer.train(X, 2 * X)[1] is layer


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ops.maxout(X, 2), r"pool_size 2 must divide the length of axis 1 of x"),
        (lambda: ops.maxout(X, 0), "pool_size must be at least 1"),
        (lambda: ops.prelu(X, np.ones(4)), r"weight float64\[4\] must be one number, or have"),
        (lambda: nn.PReLU.init(None, 4)(X), r"(?s)weight float32\[4\].*in model PReLU"),
        (lambda: ops.hard_tanh(X, 1.0, -1.0), "min_val must not be above max_val"),
        (lambda: ops.soft_shrink(X, -1.0), "lambd must not be negative"),
        (lambda: ops.clipped_relu(X, -1.0), "z must not be negative"),
        (lambda: ops.softplus(X, beta=0.0), "beta must not be 0"),
        (lambda: ops.sparsemax(np.ones((2, 0))), "has no elements"),
        (lambda: ops.scale(X, np.ones(4)), "y float64.4. must have the lengths of the axes of x"),
        (lambda: ops.bilinear(X, X, np.ones((2, 3, 4))), "must have shapes"),
        (lambda: nn.Highway.init(KEY, 3)(np.ones(4)), r"in model Highway\.plain \(Linear\)|x must"),
        (
            lambda: nn.WeightNorm.init(None, nn.Lambda(abs)),
            "Lambda.weight must be a floating array",
        ),
        (
            lambda: nn.SpectralNorm.init(KEY, nn.Linear.init(KEY, 3, 2), name="bias"),
            "Linear.bias must be a floating array of at least 2 axes",
        ),
        (lambda: nn.WeightNorm.init(None, nn.Linear.init(KEY, 3, 2), axis=2), "axis 2 is none of"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
