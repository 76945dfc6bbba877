"""Optimizers go the ways of Optax's and PyTorch's, eager and jitted.

The values are recorded by benchmarks/reference/optimizers.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import fdbr
from fdbr import ops
from fdbr.train import optim

KEPT = (1, 2, 3, 5, 10, 20, 35, 50)
with np.load(Path(__file__).parent / "reference" / "optimizers.npz") as found:
    RECORDED = dict(found)
CASES = sorted({key.rpartition("/")[0] for key in RECORDED if not key.startswith("problem/")})
PROBLEMS = {"quadratic": ("w", "b"), "rosenbrock": ("x",), "logistic": ("w", "b")}


def made(problem):
    start = f"problem/{problem}/"
    return {key.removeprefix(start): v for key, v in RECORDED.items() if key.startswith(start)}


def quadratic(p, c, d, h, **_):
    return 0.5 * ops.sum((c @ p["w"] - d) ** 2) + 0.5 * p["b"] @ (h @ p["b"])


def rosenbrock(p, **_):
    x = p["x"]
    return ops.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def logistic(p, x, y, **_):
    return ops.softmax_cross_entropy(x @ p["w"] + p["b"], y)


WRAPPED = {
    "lookahead": lambda: optim.lookahead(optim.adam(0.02), 5, 0.5),
    "sam": lambda: optim.sam(
        optim.sgd(1e-3, 0.9), optim.chain(optim.normalize(), optim.sgd(0.05))
    ),
}


def trajectory(name, options, problem, jitted):
    constants = made(problem)
    params = {key: constants.pop(key) for key in PROBLEMS[problem]}
    function = globals()[problem]
    optimizer = WRAPPED[name]() if name in WRAPPED else getattr(optim, name)(**options)
    loss = lambda p: function(p, **constants)
    if name == "lookahead":
        params = optim.LookaheadParams.init_synced(params)

    def step(params, state):
        at = params.fast if name == "lookahead" else params
        value, grads = fdbr.value_and_grad(loss)(at)
        extra = {"value": value, "grad": grads, "value_fn": loss}
        updates, state = optimizer.update(grads, state, params, **extra)
        return optim.apply_updates(params, updates), state

    step = fdbr.jit(step, reproducible=True) if jitted else step
    state, rows = optimizer.init(params), []
    for count in range(1, 51):
        params, state = step(params, state)
        if count in KEPT:
            at = params.slow if name == "lookahead" else params
            rows.append(np.concatenate([np.ravel(at[key]) for key in sorted(at)]))
    if jitted:
        assert len(step.report().traces) <= 2
    return np.stack(rows)


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_on_three_functions_are_those_of_the_reference(case, jitted):
    name, options = json.loads(case)
    for problem in PROBLEMS:
        found = trajectory(name, options, problem, jitted)
        desired = RECORDED[f"{case}/{problem}"]
        assert np.isfinite(desired).all()
        size = abs(desired).max()
        np.testing.assert_allclose(found, desired, rtol=1e-6, atol=1e-7 * size, err_msg=problem)
