"""Schedules of learning rates, as Optax and PyTorch compute them.

A case is the name of ours and its arguments, in JSON; `TORCH` says which of PyTorch's schedulers
ours is meant to be.
"""

import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax
import torch

ROOM = "train"
COUNTS = np.arange(0, 41)

OPTAX: list[tuple[str, dict[str, Any]]] = [
    ("constant_schedule", {"value": 0.3}),
    ("exponential_decay", {"init_value": 0.5, "transition_steps": 7, "decay_rate": 0.6}),
    (
        "exponential_decay",
        {
            "init_value": 0.5,
            "transition_steps": 7,
            "decay_rate": 0.6,
            "staircase": True,
            "transition_begin": 4,
            "end_value": 0.1,
        },
    ),
    (
        "exponential_decay",
        {"init_value": 0.5, "transition_steps": 7, "decay_rate": 1.6, "end_value": 2.0},
    ),
    (
        "polynomial_schedule",
        {
            "init_value": 1.0,
            "end_value": 0.2,
            "power": 2.5,
            "transition_steps": 20,
            "transition_begin": 5,
        },
    ),
    ("linear_schedule", {"init_value": 0.1, "end_value": 0.7, "transition_steps": 30}),
    (
        "piecewise_constant_schedule",
        {"init_value": 1.0, "boundaries_and_scales": {"30": 0.1, "5": 0.5, "18": 3.0}},
    ),
    *(
        (
            "piecewise_interpolate_schedule",
            {
                "interpolate_type": kind,
                "init_value": 0.7,
                "boundaries_and_scales": {"5": 2.0, "18": 0.5, "33": 0.1},
            },
        )
        for kind in ("linear", "cosine")
    ),
    ("linear_onecycle_schedule", {"transition_steps": 37, "peak_value": 0.9}),
    (
        "linear_onecycle_schedule",
        {
            "transition_steps": 20,
            "peak_value": 0.9,
            "pct_start": 0.5,
            "pct_final": 0.7,
            "div_factor": 3.0,
            "final_div_factor": 7.0,
        },
    ),
    ("cosine_onecycle_schedule", {"transition_steps": 37, "peak_value": 0.9, "pct_start": 0.4}),
    ("cosine_decay_schedule", {"init_value": 0.8, "decay_steps": 31, "alpha": 0.1}),
    ("cosine_decay_schedule", {"init_value": 0.8, "decay_steps": 31, "exponent": 1.7}),
    ("warmup_constant_schedule", {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 12}),
    (
        "warmup_cosine_decay_schedule",
        {
            "init_value": 0.1,
            "peak_value": 1.0,
            "warmup_steps": 12,
            "decay_steps": 35,
            "end_value": 0.05,
            "exponent": 1.3,
        },
    ),
    (
        "warmup_cosine_decay_schedule",
        {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 0, "decay_steps": 35},
    ),
    (
        "warmup_exponential_decay_schedule",
        {
            "init_value": 0.1,
            "peak_value": 1.0,
            "warmup_steps": 9,
            "transition_steps": 5,
            "decay_rate": 0.7,
            "transition_begin": 3,
            "end_value": 0.2,
        },
    ),
    (
        "sgdr_schedule",
        {
            "cosine_kwargs": [
                {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 3, "decay_steps": 10},
                {"init_value": 0.0, "peak_value": 0.5, "warmup_steps": 0, "decay_steps": 20},
            ]
        },
    ),
]

TORCH: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "exponential_decay",
        {"init_value": 0.5, "transition_steps": 6, "decay_rate": 0.3, "staircase": True},
        *("StepLR", {"step_size": 6, "gamma": 0.3}),
    ),
    (
        "exponential_decay",
        {"init_value": 0.5, "transition_steps": 1, "decay_rate": 0.9},
        *("ExponentialLR", {"gamma": 0.9}),
    ),
    (
        "piecewise_constant_schedule",
        {"init_value": 0.5, "boundaries_and_scales": {"6": 0.3, "20": 0.3}},
        *("MultiStepLR", {"milestones": [6, 20], "gamma": 0.3}),
    ),
    (
        "piecewise_constant_schedule",
        {"init_value": 0.125, "boundaries_and_scales": {"5": 4.0}},
        *("ConstantLR", {"factor": 0.25, "total_iters": 5}),
    ),
    (
        "linear_schedule",
        {"init_value": 0.125, "end_value": 0.5, "transition_steps": 9},
        *("LinearLR", {"start_factor": 0.25, "total_iters": 9}),
    ),
    (
        "polynomial_schedule",
        {"init_value": 0.5, "end_value": 0.0, "power": 2.0, "transition_steps": 25},
        *("PolynomialLR", {"total_iters": 25, "power": 2.0}),
    ),
    (
        "cosine_decay_restarts_schedule",
        {"init_value": 0.5, "first_decay_steps": 7, "t_mul": 2, "alpha": 0.2},
        *("CosineAnnealingWarmRestarts", {"T_0": 7, "T_mult": 2, "eta_min": 0.1}),
    ),
    (
        "cosine_decay_restarts_schedule",
        {"init_value": 0.5, "first_decay_steps": 7},
        *("CosineAnnealingWarmRestarts", {"T_0": 7}),
    ),
    *(
        (
            "cyclic_schedule",
            {
                "init_value": 0.1,
                "peak_value": 0.5,
                "steps_up": 5,
                "steps_down": 8,
                "mode": mode,
                "gamma": gamma,
            },
            *("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 5}),
        )
        for mode, gamma in (("triangular", 1.0), ("triangular2", 1.0), ("exp_range", 0.95))
    ),
]


def _with_integers(value: Any) -> Any:
    """Keys of boundaries are steps, which JSON writes as texts."""
    if isinstance(value, dict):
        return {int(k) if k.isdigit() else k: _with_integers(v) for k, v in value.items()}
    return value


def _of_torch(scheduler: str, rate: float, arguments: dict[str, Any]) -> Any:
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=rate, momentum=0.9)
    made = getattr(torch.optim.lr_scheduler, scheduler)(optimizer, **arguments)
    found = []
    for _ in COUNTS:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        made.step()
    return found


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """All of them, by name and arguments."""
    jax.config.update("jax_enable_x64", True)
    for name, arguments in OPTAX:
        schedule = getattr(optax, name)(**_with_integers(arguments))
        values = [float(schedule(int(count))) for count in COUNTS]
        yield json.dumps([name, arguments]), {"optax": np.array(values)}
    for name, arguments, scheduler, theirs in TORCH:
        if scheduler == "CyclicLR":
            theirs = theirs | {"step_size_down": 8, "mode": arguments["mode"]}
            theirs["gamma"] = arguments["gamma"]
        values = _of_torch(scheduler, 0.5, theirs)
        yield json.dumps([name, arguments]), {f"torch {scheduler}": np.array(values)}
