"""Optimizers go the ways of Optax's and PyTorch's, eager and jitted.

The values are recorded by benchmarks/reference/optimizers.py.
"""

import functools
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
    "sam": lambda: optim.sam(optim.sgd(1e-3, 0.9), optim.chain(optim.normalize(), optim.sgd(0.05))),
}


def rows_of(name, options, jitted):
    """The parameters after some steps, of all functions."""
    optimizer = WRAPPED[name]() if name in WRAPPED else getattr(optim, name)(**options)
    two = name == "lookahead"
    losses, states = {}, {}
    for problem, names in PROBLEMS.items():
        constants = made(problem)
        params = {key: constants.pop(key) for key in names}
        params = optim.LookaheadParams.init_synced(params) if two else params
        states[problem] = params, optimizer.init(params)
        losses[problem] = functools.partial(globals()[problem], **constants)

    def step(states):
        new = {}
        for problem, (params, state) in states.items():
            loss = losses[problem]
            value, grads = fdbr.value_and_grad(loss)(params.fast if two else params)
            extra = {"value": value, "grad": grads, "value_fn": loss}
            updates, state = optimizer.update(grads, state, params, **extra)
            new[problem] = optim.apply_updates(params, updates), state
        return new

    step = fdbr.jit(step) if jitted else step
    rows = {problem: [] for problem in PROBLEMS}
    for count in range(1, 51):
        states = step(states)
        if count in KEPT:
            for problem, (params, _) in states.items():
                at = params.slow if two else params
                rows[problem].append(np.concatenate([np.ravel(at[key]) for key in sorted(at)]))
    if jitted:
        assert len(step.report().traces) <= (2 if name in ("sam", "lbfgs") else 1)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jitted"])
@pytest.mark.parametrize("case", CASES)
def test_fifty_steps_on_three_functions_are_those_of_the_reference(case, jitted):
    name, options = json.loads(case)
    # Optax has Adafactor's decay in float32; L-BFGS goes far on what has no minimum.
    rtol = 1e-5 if name in ("adafactor", "lbfgs") else 1e-6
    for problem, rows in rows_of(name, options, jitted).items():
        desired = RECORDED[f"{case}/{problem}"]
        assert np.isfinite(desired).all()
        size = 0.1 * rtol * abs(desired).max()
        np.testing.assert_allclose(rows, desired, rtol=rtol, atol=size, err_msg=problem)
