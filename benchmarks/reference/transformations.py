"""Gradient transformations and wrappers, as Optax and PyTorch compute them.

A case is the name of ours, its arguments, and what is around it, in JSON; its arrays are the
updates of a few steps, of two leaves, from gradients that `gradients` draws.
"""

import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

ROOM = "train"
STEPS = 12

SIMPLE: list[tuple[str, dict[str, Any]]] = [
    ("clip", {"max_delta": 0.4}),
    ("clip_by_block_rms", {"threshold": 0.3}),
    ("clip_by_global_norm", {"max_norm": 0.9}),
    ("adaptive_grad_clip", {"clipping": 0.3, "axis": -1}),
    ("add_decayed_weights", {"weight_decay": 0.2}),
    ("centralize", {}),
    ("normalize_by_update_norm", {"scale_factor": 2.0, "eps": 0.01}),
    ("scale_by_trust_ratio", {"min_norm": 0.1, "trust_coefficient": 0.5, "eps": 0.01}),
    ("scale_by_param_block_norm", {"min_scale": 0.1}),
    ("scale_by_param_block_rms", {"min_scale": 0.1}),
    ("keep_params_nonnegative", {}),
    ("zero_nans", {}),
    ("ema", {"decay": 0.8}),
    ("ema", {"decay": 0.8, "debias": False}),
    ("apply_every", {"k": 3}),
    ("set_to_zero", {}),
]


def gradients(step: int) -> dict[str, Any]:
    """The gradients of a step, some of which are large, and one of which is NaN."""
    random = np.random.default_rng(step)
    scale = 10.0 ** (step % 3 - 1)
    found = {"w": random.normal(size=(3, 2)) * scale, "b": random.normal(size=2) * scale}
    return {name: np.round(array, 6) for name, array in found.items()}


def parameters() -> dict[str, Any]:
    """Where trajectories begin."""
    random = np.random.default_rng(100)
    return {"w": np.round(random.normal(size=(3, 2)), 6), "b": np.array([0.5, -0.25])}


def _wrappers() -> dict[str, Any]:
    sgd, adam = optax.sgd(0.1, momentum=0.9), optax.adam(0.1)
    return {
        "masked": optax.masked(adam, {"w": True, "b": False}),
        "partition": optax.partition({"x": adam, "y": sgd}, {"w": "x", "b": "y"}),
        "apply_if_finite": optax.apply_if_finite(adam, 2),
        "conditionally_transform": optax.conditionally_transform(adam, lambda step: step % 3 == 1),
        "conditionally_mask": optax.conditionally_mask(adam, lambda step: step % 3 == 1),
        "multi_steps": optax.MultiSteps(adam, 3, accumulator_dtype=jnp.float64),
        "multi_steps sum": optax.MultiSteps(
            sgd, lambda step: step + 1, use_grad_mean=False, accumulator_dtype=jnp.float64
        ),
        "inject": optax.inject_hyperparams(optax.adam)(
            learning_rate=optax.exponential_decay(0.1, 2, 0.5), b1=0.8
        ),
        "plateau": optax.chain(
            sgd, optax.contrib.reduce_on_plateau(0.5, 2, 0.01, cooldown=1, accumulation_size=2)
        ),
    }


def _run(transformation: Any, holes: bool) -> dict[str, Any]:
    params = {name: jnp.asarray(p) for name, p in parameters().items()}
    found: dict[str, list[Any]] = {"w": [], "b": []}
    state = transformation.init(params)
    extra = optax.with_extra_args_support
    update = getattr(transformation, "gradient_transformation", lambda: transformation)()
    update = extra(update).update
    for step in range(STEPS):
        grads = {name: jnp.asarray(g) for name, g in gradients(step).items()}
        if holes and step % 4 == 2:
            grads["w"] = grads["w"].at[0, 1].set(jnp.nan)
        value = jnp.asarray(values(step))
        updates, state = update(grads, state, params, value=value)
        for name in found:
            found[name].append(np.asarray(updates[name]))
        params = optax.apply_updates(params, updates)
    return {name: np.stack(parts) for name, parts in found.items()}


def values(step: int) -> float:
    """The values of the objective that plateaus are found in."""
    return [9.0, 7.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 4.0, 4.0, 4.0, 4.0][step % 12]


def _clip_of_torch() -> dict[str, Any]:
    found = []
    for step in range(STEPS):
        leaves = [torch.zeros(g.shape, dtype=torch.float64) for g in gradients(step).values()]
        for leaf, g in zip(leaves, gradients(step).values(), strict=True):
            leaf.grad = torch.tensor(g)
        torch.nn.utils.clip_grad_norm_(leaves, 0.9)
        found.append([leaf.grad.numpy() for leaf in leaves])
    return {"w": np.stack([f[0] for f in found]), "b": np.stack([f[1] for f in found])}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """All of them."""
    jax.config.update("jax_enable_x64", True)
    for name, arguments in SIMPLE:
        holes = name == "zero_nans"
        made = getattr(optax, name)(**arguments)
        yield json.dumps([name, arguments]), _run(made, holes)
    for name, made in _wrappers().items():
        yield json.dumps(["wrapper", name]), _run(made, name == "apply_if_finite")
    yield json.dumps(["torch", "clip_grad_norm_"]), _clip_of_torch()
