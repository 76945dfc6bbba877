"""Research programs, written plainly: how long 1, 10, 100 and 1,000 calls take from a cold start.

``python -m benchmarks research`` times fdbr, eager and jitted, beside ``jax.jit``.  It prints
tables and writes ``result/research.json``; ``python -m benchmarks research --help`` names its
options.

A program is one module that has

- ``TITLE``, a line for the table; ``DTYPE`` of its arrays; ``RTOL``, how closely both libraries
  must agree;
- ``Sizes``: a frozen class whose defaults are the program's, and ``TINY``, an instance for tests;
- ``start``, from sizes to the state and the batch, trees of NumPy arrays;
- ``fdbr`` and ``jax``, each a function ``(np, library, random, sizes)`` that gives ``step``:
  ``step(state, batch)`` gives the next state and a result to compare.  ``np`` is NumPy or
  ``jax.numpy``, and ``random`` the library's module of keys and draws;
- ``RANDOM``, true where ``step`` draws: the state is then a pair of a key and what `start` gave.

Where JAX needs no control flow of its own, one text serves both libraries.
"""

import importlib
from types import ModuleType

__all__ = ["NAMES", "load"]

NAMES = (
    *("maml", "runge_kutta", "runge_kutta_batched", "pinn", "gaussian_process", "vae", "hmc"),
    *("realnvp", "lstm", "natural_gradient", "kalman", "heat", "adam"),
    *("odeint", "odeint_gradient", "odeint_by_hand"),
    *("fixed_point", "fixed_point_gradient", "fixed_point_by_hand"),
)


def load(name: str) -> ModuleType:
    """A program's module."""
    return importlib.import_module(f"benchmarks.research.{name}")
