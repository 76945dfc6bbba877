"""Fifty steps of optimizers on three functions, as Optax and PyTorch make them.

A case is the name of ours and its arguments, in JSON, and the function; its array has the
parameters after each of `KEPT` steps, in one row.  What neither has is computed in plain NumPy,
from the formula of its paper.
"""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import torch

from benchmarks.reference._optimizers_in_numpy import RULES

ROOM = "train"
STEPS = 50
KEPT = (1, 2, 3, 5, 10, 20, 35, 50)

OPTAX: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {"learning_rate": 1e-3}),
    ("sgd", {"learning_rate": 1e-3, "momentum": 0.9}),
    ("sgd", {"learning_rate": 1e-3, "momentum": 0.8, "nesterov": True}),
    ("adam", {"learning_rate": 0.02}),
    ("adam", {"learning_rate": 0.02, "b1": 0.8, "b2": 0.9, "eps": 1e-3, "eps_root": 1e-4}),
    ("adam", {"learning_rate": 0.02, "nesterov": True}),
    ("adamw", {"learning_rate": 0.02, "weight_decay": 0.1}),
    ("nadam", {"learning_rate": 0.02}),
    ("nadamw", {"learning_rate": 0.02, "weight_decay": 0.1}),
    ("adamax", {"learning_rate": 0.02}),
    ("adamaxw", {"learning_rate": 0.02, "weight_decay": 0.1}),
    ("amsgrad", {"learning_rate": 0.02, "b2": 0.9}),
    (
        "amsgrad",
        {"learning_rate": 0.02, "bias_correction_mu": False, "bias_correction_nu": False},
    ),
    ("adabelief", {"learning_rate": 0.02}),
    ("adabelief", {"learning_rate": 0.02, "nesterov": True, "eps_root": 1e-8}),
    ("yogi", {"learning_rate": 0.02}),
    ("radam", {"learning_rate": 1e-3, "b2": 0.9}),
    ("radam", {"learning_rate": 1e-3, "b2": 0.95, "nesterov": True, "threshold": 6.0}),
    ("adan", {"learning_rate": 0.02, "weight_decay": 0.1}),
    ("lion", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("sign_sgd", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01, "eps_in_sqrt": False, "momentum": 0.9}),
    ("rmsprop", {"learning_rate": 0.01, "centered": True, "momentum": 0.8, "nesterov": True}),
    ("rmsprop", {"learning_rate": 0.01, "centered": True, "eps": 1e-4, "bias_correction": True}),
    ("rmsprop", {"learning_rate": 0.01, "initial_scale": 1.0, "bias_correction": True}),
    ("adagrad", {"learning_rate": 0.1}),
    ("adadelta", {"learning_rate": 1.0, "weight_decay": 0.01}),
    ("lars", {"learning_rate": 0.1, "weight_decay": 0.01, "trust_coefficient": 0.1}),
    ("lamb", {"learning_rate": 0.02, "weight_decay": 0.1}),
    ("fromage", {"learning_rate": 0.01}),
    ("novograd", {"learning_rate": 0.01, "weight_decay": 0.1}),
    ("sm3", {"learning_rate": 0.1}),
    ("adafactor", {"learning_rate": 0.02, "min_dim_size_to_factor": 2}),
    (
        "adafactor",
        {
            "learning_rate": 0.02,
            "min_dim_size_to_factor": 2,
            "momentum": 0.9,
            "dtype_momentum": "float64",
            "weight_decay_rate": 1e-3,
        },
    ),
    ("adafactor", {"learning_rate": 0.02, "factored": False, "clipping_threshold": None}),
    ("optimistic_gradient_descent", {"learning_rate": 1e-3, "alpha": 0.9, "beta": 0.8}),
    ("optimistic_adam_v2", {"learning_rate": 0.02, "alpha": 0.9, "beta": 0.8}),
    ("polyak_sgd", {"max_learning_rate": 1e-3}),
    ("polyak_sgd", {"max_learning_rate": 0.02, "scaling": 0.5, "variant": "sps+"}),
    ("muon", {"learning_rate": 0.02}),
    ("muon", {"learning_rate": 0.02, "nesterov": False, "weight_decay": 0.1, "ns_steps": 3}),
    ("schedule_free_sgd", {"learning_rate": 1e-3, "warmup_steps": 5}),
    ("schedule_free_adamw", {"learning_rate": 0.02, "weight_decay": 0.01}),
    ("lbfgs", {"learning_rate": 1e-3, "linesearch": None, "memory_size": 4}),
    ("lbfgs", {}),
]
TORCH: list[tuple[str, dict[str, Any], Callable[..., Any]]] = [
    (
        "asgd",
        {"learning_rate": 1e-3, "lambd": 0.01, "t0": 10.0},
        lambda p: torch.optim.ASGD(p, 1e-3, lambd=0.01, t0=10),
    ),
    # Optax 0.2.8 moves by the step before.
    ("rprop", {"learning_rate": 0.01}, lambda p: torch.optim.Rprop(p, 0.01)),
]
WRAPPED: dict[str, Callable[[], Any]] = {
    "lookahead": lambda: optax.lookahead(optax.adam(0.02), 5, 0.5),
    "sam": lambda: optax.contrib.sam(
        optax.sgd(1e-3, 0.9), optax.chain(optax.contrib.normalize(), optax.sgd(0.05))
    ),
}


def _problems() -> dict[str, dict[str, Any]]:
    """What the functions are made of, and where they start."""
    random = np.random.default_rng(0)
    square = random.normal(size=(4, 4))
    return {
        "quadratic": {
            "w": random.normal(size=(3, 2)),
            "b": random.normal(size=4),
            "c": random.normal(size=(3, 3)),
            "d": random.normal(size=(3, 2)),
            "h": square @ square.T / 4 + np.eye(4) / 2,
        },
        "rosenbrock": {"x": np.array([-1.2, 1.0, 0.5, -0.3])},
        "logistic": {
            "w": random.normal(size=(4, 3)) / 2,
            "b": random.normal(size=3) / 2,
            "x": random.normal(size=(12, 4)),
            "y": random.integers(0, 3, 12),
        },
    }


def _quadratic(p: Any, made: Any, xp: Any) -> Any:
    return 0.5 * ((made["c"] @ p["w"] - made["d"]) ** 2).sum() + 0.5 * p["b"] @ (made["h"] @ p["b"])


def _rosenbrock(p: Any, made: Any, xp: Any) -> Any:
    x = p["x"]
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def _logistic(p: Any, made: Any, xp: Any) -> Any:
    scores = made["x"] @ p["w"] + p["b"]
    of_labels = scores[xp.arange(12), made["y"]]
    return (xp.log(xp.exp(scores).sum(1)) - of_labels).mean()


FUNCTIONS = {
    "quadratic": (_quadratic, ("w", "b")),
    "rosenbrock": (_rosenbrock, ("x",)),
    "logistic": (_logistic, ("w", "b")),
}


def _outputs_first(params: Any) -> Any:
    """The layout of our matrices, (outputs, inputs), in Optax's words."""
    ours = optax.contrib.MuonDimensionNumbers(reduction_axis=1, output_axis=0)
    return jax.tree.map(lambda p: ours if p.ndim == 2 else None, params)


def _row(params: dict[str, Any]) -> Any:
    return np.concatenate([np.asarray(params[key]).ravel() for key in sorted(params)])


def _descend(make: Callable[[], Any], loss: Any, params: Any, wrap: str = "") -> Any:
    """The rows of parameters that an optimizer of Optax's goes through."""
    optimizer = optax.with_extra_args_support(make())
    if wrap == "lookahead":
        params = optax.LookaheadParams.init_synced(params)
    state, rows = optimizer.init(params), []
    needs = loss if wrap == "value_fn" else None

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        at = params.fast if wrap == "lookahead" else params
        value, grads = jax.value_and_grad(loss)(at)
        extra = {"value": value, "grad": grads, "value_fn": needs} if needs else {}
        if wrap == "value":
            extra = {"value": value}
        updates, state = optimizer.update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    for count in range(1, STEPS + 1):
        params, state = step(params, state)
        if count in KEPT:
            rows.append(_row(params.slow if wrap == "lookahead" else params))
    return np.stack(rows)


def _descend_in_torch(make: Any, function: Any, made: Any, params: Any) -> Any:
    tensors = {key: torch.tensor(value, requires_grad=True) for key, value in params.items()}
    constants = {key: torch.tensor(value) for key, value in made.items()}
    optimizer, rows = make(list(tensors.values())), []
    for count in range(1, STEPS + 1):
        optimizer.zero_grad()
        function(tensors, constants, torch).backward()
        optimizer.step()
        if count in KEPT:
            rows.append(_row({key: value.detach() for key, value in tensors.items()}))
    return np.stack(rows)


def _descend_in_numpy(rule: Any, loss: Any, params: Any) -> Any:
    slope, rows = jax.jit(jax.grad(loss)), []
    states: dict[str, Any] = {key: {} for key in params}
    for count in range(1, STEPS + 1):
        grads = slope(params)
        params = {
            key: p + rule(np.asarray(grads[key]), p, states[key], count)
            for key, p in params.items()
        }
        if count in KEPT:
            rows.append(_row(params))
    return np.stack(rows)


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Named arrays: what the functions are made of, and rows of parameters."""
    jax.config.update("jax_enable_x64", True)
    problems = _problems()
    for problem, made in problems.items():
        yield f"problem/{problem}", made
        function, names = FUNCTIONS[problem]
        params = {key: made[key] for key in names}

        def loss(p: Any, function: Any = function, made: Any = made) -> Any:
            return function(p, {key: jnp.asarray(value) for key, value in made.items()}, jnp)

        for name, options in OPTAX:
            make = getattr(optax, name, None) or getattr(optax.contrib, name)
            if name == "muon":
                make = functools.partial(make, muon_weight_dimension_numbers=_outputs_first)
            wrap = "value" if name == "polyak_sgd" else ""
            wrap = "value_fn" if name == "lbfgs" and not options else wrap
            rows = _descend(functools.partial(make, **options), loss, params, wrap)
            yield json.dumps([name, options]), {problem: rows}
        for name, wrapped in WRAPPED.items():
            yield json.dumps([name, {}]), {problem: _descend(wrapped, loss, params, name)}
        for name, options, make in TORCH:
            rows = _descend_in_torch(make, function, made, params)
            yield json.dumps([name, options]), {problem: rows}
        for name, options, rule in RULES:
            yield json.dumps([name, options]), {problem: _descend_in_numpy(rule, loss, params)}
