"""Values and gradients of functions and layers, and steps of optimizers, recorded for the tests.

``python -m benchmarks.reference`` records those of all families, with names those of some.  Each
family is a module here, whose ``cases()`` yields names and arrays: inputs, settings as arrays,
outputs and gradients, as PyTorch or Optax computes them.  They are written to ``reference/`` in the
tests of the family's ``ROOM``, ``nn`` by default, from where `nn.recorded` reads them, so the tests
need neither.
"""

from typing import Any

import numpy as np

__all__ = ["packed"]


def packed(parts: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a case as one vector, with their names and shapes beside it.

    An array takes half a kilobyte of the file, however small it is.  `nn.recorded` unpacks them.
    """
    arrays = {n: np.asarray(p.detach() if hasattr(p, "detach") else p) for n, p in parts.items()}
    names = [f"{n}|{a.dtype}|{','.join(map(str, a.shape))}" for n, a in arrays.items()]
    flat = [a.astype("float64").reshape(-1) for a in arrays.values()]
    return {"packed names": np.array(names), "packed values": np.concatenate(flat)}
