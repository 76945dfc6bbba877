"""`nadam` with PyTorch's schedule of the momentum, and `muon`'s factor of the shape."""

import numpy as np
import pytest

import fdbr
from fdbr.train import optim

RNG = np.random.default_rng(7)
PARAMS = {"w": RNG.normal(size=(7, 3)), "v": RNG.normal(size=(2, 5)), "b": RNG.normal(size=4)}


def gradient(p):
    return {name: np.cos(1.3 * x) * (x - 0.4) for name, x in p.items()}


def steps(optimizer, params, count=60, jitted=False):
    def step(params, state):
        updates, state = optimizer.update(gradient(params), state, params)
        return optim.apply_updates(params, updates), state

    step = fdbr.jit(step) if jitted else step
    state = optimizer.init(params)
    for _ in range(count):
        params, state = step(params, state)
    return params


def pytorch_nadam(params, rate, b1, b2, decay, weight_decay=0.0, eps=1e-8, count=60):
    """torch.optim.NAdam, written out (torch/optim/nadam.py, _single_tensor_nadam)."""
    m = dict.fromkeys(params, 0.0)
    v, product = dict(m), 1.0
    for t in range(1, count + 1):
        mu = b1 * (1 - 0.5 * 0.96 ** (t * decay))
        ahead = b1 * (1 - 0.5 * 0.96 ** ((t + 1) * decay))
        product *= mu
        new = {}
        for name, g in gradient(params).items():
            p = params[name] * (1 - rate * weight_decay)
            m[name] = b1 * m[name] + (1 - b1) * g
            v[name] = b2 * v[name] + (1 - b2) * g * g
            root = np.sqrt(v[name] / (1 - b2**t)) + eps
            p = p - rate * (1 - mu) / (1 - product) * g / root
            new[name] = p - rate * ahead / (1 - product * ahead) * m[name] / root
        params = new
    return params


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(("b1", "b2", "decay"), [(0.9, 0.999, 0.004), (0.8, 0.99, 0.1)])
def test_nadam_with_a_momentum_decay_is_that_of_pytorch(b1, b2, decay, jitted):
    found = steps(optim.nadam(0.02, b1, b2, momentum_decay=decay), PARAMS, jitted=jitted)
    desired = pytorch_nadam(PARAMS, 0.02, b1, b2, decay)
    for name in PARAMS:
        assert np.allclose(found[name], desired[name], rtol=1e-10)
    found = steps(optim.nadamw(0.02, b1, b2, weight_decay=0.1, momentum_decay=decay), PARAMS)
    desired = pytorch_nadam(PARAMS, 0.02, b1, b2, decay, weight_decay=0.1)
    for name in PARAMS:
        assert np.allclose(found[name], desired[name], rtol=1e-10)


def test_nadam_refuses_a_momentum_decay_that_means_nothing():
    with pytest.raises(ValueError, match=r"nadam: momentum_decay=0\.1 is of Nesterov's momentum"):
        optim.nadam(0.1, nesterov=False, momentum_decay=0.1)
    with pytest.raises(ValueError, match="momentum_decay"):
        optim.nadam(0.1, momentum_decay=-1.0)


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 4), (6, 1), (1, 6)])
def test_muon_scales_updates_of_outputs_times_inputs_by_their_ratio(shape):
    x = np.random.default_rng(0).normal(size=shape)
    optimizer = optim.muon(0.1)
    update, _ = optimizer.update({"w": x}, optimizer.init({"w": x}), {"w": x})
    alone = optim.orthogonalize_via_newton_schulz(x)
    factor = np.sqrt(max(1.0, shape[0] / shape[1]))
    assert np.allclose(update["w"], -0.1 * factor * alone, rtol=1e-6)


def test_adaptive_grad_clip_takes_the_norms_of_outputs():
    rng = np.random.default_rng(1)
    for shape in [(5, 3), (4, 3, 2, 2), (6,)]:
        p, g = rng.normal(size=shape), rng.normal(size=shape)
        clipped, _ = optim.adaptive_grad_clip(0.1).update(g, optim.EmptyState(), p)
        rows = [(p, g, clipped)] if len(shape) == 1 else zip(p, g, clipped, strict=True)
        for unit, before, after in rows:
            limit = 0.1 * max(np.linalg.norm(unit), 1e-3)
            factor = min(1.0, limit / np.linalg.norm(before))
            assert np.allclose(after, factor * before, rtol=1e-12)
