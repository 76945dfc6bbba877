"""Rules that neither Optax nor PyTorch has, from the formulas of their papers.

A rule is a function of a gradient, the parameter, a dictionary to keep things in, and the count of
steps, this one included; it returns the change of the parameter.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Rule = Callable[[Any, Any, dict[str, Any], int], Any]


def adabound(
    rate: float, b1: float, b2: float, eps: float, final: float, gamma: float, greatest: bool
) -> Rule:
    """AdaBound, and AMSBound with the ``greatest`` second moment (Luo et al., ICLR 2019)."""

    def rule(g: Any, p: Any, kept: dict[str, Any], t: int) -> Any:
        m = kept["m"] = b1 * kept.get("m", 0) + (1 - b1) * g
        v = kept["v"] = b2 * kept.get("v", 0) + (1 - b2) * g**2
        if greatest:
            v = kept["top"] = np.maximum(kept.get("top", 0), v)
        corrected = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
        rates = corrected / (np.sqrt(v) + eps)
        low, high = final * (1 - 1 / (gamma * t + 1)), final * (1 + 1 / (gamma * t))
        return -np.clip(rates, low, high) * m

    return rule


def msvag(rate: float, beta: float) -> Rule:
    """M-SVAG (Balles & Hennig, ICML 2018)."""

    def rule(g: Any, p: Any, kept: dict[str, Any], t: int) -> Any:
        m = kept["m"] = beta * kept.get("m", 0) + (1 - beta) * g
        v = kept["v"] = beta * kept.get("v", 0) + (1 - beta) * g**2
        mean, square = m / (1 - beta**t), v / (1 - beta**t)
        rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * (1 - beta**t))
        rho = min(rho, 0.9999)
        variance = (square - mean**2) / (1 - rho)
        return -rate * np.clip(mean**2 / (mean**2 + rho * variance), 0, 1) * mean

    return rule


def smorms3(rate: float, eps: float) -> Rule:
    """SMORMS3 (Funk 2015)."""

    def rule(g: Any, p: Any, kept: dict[str, Any], t: int) -> Any:
        memory = kept.get("memory", 1.0)
        r = 1 / (memory + 1)
        first = kept["first"] = (1 - r) * kept.get("first", 0) + r * g
        second = kept["second"] = (1 - r) * kept.get("second", 0) + r * g**2
        x = first**2 / (second + eps)
        kept["memory"] = 1 + memory * (1 - x)
        return -g * np.minimum(rate, x) / (np.sqrt(second) + eps)

    return rule


def shampoo(rate: float, eps: float) -> Rule:
    """Shampoo (Gupta, Koren & Singer, ICML 2018), of arrays of up to two axes."""

    def rule(g: Any, p: Any, kept: dict[str, Any], t: int) -> Any:
        out = g
        for axis, size in enumerate(g.shape):
            rows = np.moveaxis(g, axis, 0).reshape(size, -1)
            total = kept[str(axis)] = kept.get(str(axis), eps * np.eye(size)) + rows @ rows.T
            values, vectors = np.linalg.eigh(total)
            root = (vectors * values ** (-1 / (2 * g.ndim))) @ vectors.T
            out = np.moveaxis(np.tensordot(root, out, (1, axis)), 0, axis)
        return -rate * out

    return rule


RULES: list[tuple[str, dict[str, Any], Rule]] = [
    (
        "adabound",
        {"learning_rate": 0.02, "final_learning_rate": 1e-3, "gamma": 0.1},
        adabound(0.02, 0.9, 0.999, 1e-8, 1e-3, 0.1, False),
    ),
    (
        "amsbound",
        {"learning_rate": 0.02, "b2": 0.9, "final_learning_rate": 1e-3},
        adabound(0.02, 0.9, 0.9, 1e-8, 1e-3, 1e-3, True),
    ),
    ("msvag", {"learning_rate": 1e-3, "beta": 0.8}, msvag(1e-3, 0.8)),
    ("smorms3", {"learning_rate": 0.02}, smorms3(0.02, 1e-16)),
    ("shampoo", {"learning_rate": 0.1, "eps": 1e-4}, shampoo(0.1, 1e-4)),
]
