"""Optimizers take bare arrays and trees, and gradients of another dtype than the parameters."""

import ml_dtypes
import numpy as np
import pytest

import fdbr
from fdbr import tree
from fdbr.train import optim

MATRICES = {
    "muon": lambda: optim.muon(0.01),
    "shampoo": lambda: optim.shampoo(0.01),
    "partition": lambda: optim.partition({"a": optim.adam(0.01), "b": optim.sgd(0.1)}, "a"),
    "masked, False": lambda: optim.masked(optim.add_decayed_weights(0.1), False),
    "selective_transform": lambda: optim.selective_transform(optim.adamw(0.1), freeze_mask=True),
    "adamw(mask=False)": lambda: optim.adamw(0.01, mask=False),
}
RATES = """adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad asgd fromage
    lamb lars lion nadam nadamw novograd optimistic_gradient_descent radam rmsprop rprop sgd
    sign_sgd sm3 yogi""".split()
OPTIMIZERS = {
    **MATRICES,
    **{name: lambda name=name: getattr(optim, name)(0.01) for name in RATES},
    "nadam with a schedule": lambda: optim.nadam(0.01, momentum_decay=0.004),
    "sgd with momentum": lambda: optim.sgd(0.01, 0.9),
    "scale": lambda: optim.scale(0.3),
    "clip": lambda: optim.clip(1.5),
    "clip_by_global_norm": lambda: optim.clip_by_global_norm(1.5),
    "clip_by_block_norm": lambda: optim.clip_by_block_norm(1.5),
    "clip_by_block_rms": lambda: optim.clip_by_block_rms(0.5),
    "adaptive_grad_clip": lambda: optim.adaptive_grad_clip(0.1),
    "centralize": lambda: optim.centralize(),
    "add_decayed_weights": lambda: optim.add_decayed_weights(0.1),
    "normalize_by_update_norm": lambda: optim.normalize_by_update_norm(),
    "scale_by_trust_ratio": lambda: optim.scale_by_trust_ratio(),
    "trace": lambda: optim.trace(0.9),
    "ema": lambda: optim.ema(0.9),
    "apply_every": lambda: optim.apply_every(2),
    "zero_nans": lambda: optim.zero_nans(),
    "chain": lambda: optim.chain(optim.clip(1.0), optim.adam(0.01), optim.add_decayed_weights(0.1)),
    "add_noise": lambda: optim.add_noise(0.1, 0.55, fdbr.random.key(0)),
    "apply_if_finite": lambda: optim.apply_if_finite(optim.adam(0.1), 2),
    "MultiSteps": lambda: optim.MultiSteps(optim.adam(0.1), 2),
    "flatten": lambda: optim.flatten(optim.adam(0.1)),
    "inject_hyperparams": lambda: optim.inject_hyperparams(optim.adam)(learning_rate=0.1),
}
TREES = {
    "a bare array": lambda x: x,
    "a list": lambda x: [x, x[0]],
    "a dict": lambda x: {"w": x, "b": x[0]},
    "a nested tree": lambda x: {"a": [x, {"b": (x[0], x)}]},
    "with None": lambda x: {"w": x, "none": None},
    "an empty tree": lambda x: {},
}
PAIRS = [
    ("float32", "float32"),
    ("float32", "float16"),
    ("float32", "float64"),
    ("float64", "float32"),
    ("float16", "float32"),
    ("float32", ml_dtypes.bfloat16),
    (ml_dtypes.bfloat16, "float32"),
    ("float32", "int32"),
]
X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -2.0]])
G = np.array([[1.0, 2.0, -3.0], [4.0, -1.0, 2.0]])


def forms(values):
    return tree.structure(values), [
        (getattr(leaf, "dtype", type(leaf)), getattr(leaf, "shape", ()))
        for leaf in tree.leaves(values)
    ]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_and_states_keep_structure_and_dtype_whatever_gradients_are(name):
    optimizer = OPTIMIZERS[name]()
    for make in TREES.values():
        for own, other in PAIRS:
            params, grads = make(X.astype(own)), make(G.astype(other))
            state = optimizer.init(params)
            new = params
            for _ in range(3):
                updates, after = optimizer.update(grads, state, new)
                if name != "masked, False":  # which hands gradients on as they are
                    assert forms(updates) == forms(params), (own, other)
                assert forms(after) == forms(state), (own, other)
                new, state = optim.apply_updates(new, updates), after
                assert forms(new) == forms(params)


@pytest.mark.parametrize("name", ["adam", "muon", "adamw(mask=False)", "clip_by_global_norm"])
@pytest.mark.parametrize("kind", ["a bare array", "a nested tree"])
def test_so_they_do_within_jit(name, kind):
    optimizer, make = OPTIMIZERS[name](), TREES[kind]
    params, grads = make(X.astype("float32")), make(G.astype(ml_dtypes.bfloat16))
    state = optimizer.init(params)
    step = fdbr.jit(optimizer.update)
    for _ in range(3):
        updates, after = step(grads, state, params)
        desired, _ = optimizer.update(grads, state, params)
        for a, b in zip(tree.leaves(updates), tree.leaves(desired), strict=True):
            assert a.dtype == b.dtype
            assert np.allclose(a, b, rtol=1e-5)
        state = after


@pytest.mark.parametrize("name", ["scale", "clip", "clip_by_global_norm", "clip_by_block_norm"])
def test_gradients_that_are_integers_are_not_truncated(name):
    optimizer = OPTIMIZERS[name]()
    for grads in (np.array([1, 2, -3]), [np.array([4, -5]), 2], {"n": np.int64(7)}, 3):
        exact = tree.map(
            lambda g: np.asarray(g, float)[()] if hasattr(g, "dtype") else g * 1.0, grads
        )
        found, _ = optimizer.update(grads, optimizer.init(exact))
        desired, _ = optimizer.update(exact, optimizer.init(exact))
        for a, b in zip(tree.leaves(found), tree.leaves(desired), strict=True):
            assert np.asarray(a).dtype == np.float64
            assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ["adam", "sgd", "scale", "muon", "clip_by_global_norm"])
def test_a_gradient_of_an_integer_parameter_is_an_error(name):
    optimizer = OPTIMIZERS[name]() if name in OPTIMIZERS else None
    params = {"w": np.ones((2, 2)), "n": np.arange(3)}
    state = optimizer.init(params)
    with pytest.raises(ValueError, match=r"parameter at \['n'\] is int64\[3\].*ops\.asarray"):
        optimizer.update({"w": np.ones((2, 2)), "n": np.ones(3)}, state, params)
    updates, _ = optimizer.update({"w": np.ones((2, 2)), "n": None}, state, params)
    assert updates["n"] is None


def test_complex_gradients_of_real_parameters_are_an_error():
    optimizer = optim.adam(0.1)
    with pytest.raises(ValueError, match="complex128"):
        optimizer.update(np.ones(2) * 1j, optimizer.init(np.ones(2)), np.ones(2))


@pytest.mark.parametrize("complex_update", [1j, np.complex64(1j), np.array(1j)])
def test_a_complex_update_of_a_number_is_an_error(complex_update):
    with pytest.raises(ValueError, match="updates must fit the parameters"):
        optim.apply_updates([1.0], [complex_update])


def test_a_mean_of_an_integer_and_a_float_is_not_truncated():
    for old in (1, np.int64(1), np.array(1)):
        assert optim.incremental_update([2.5], [old], 0.5)[0] == 1.75
