"""The libraries that take part, and how each is made ready."""

import importlib
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np


@attrs.frozen
class Peer:
    """A library: the module it needs, and how its arrays become NumPy arrays."""

    module: str
    prepare: Callable[[Any, int], None] = lambda module, threads: None
    to_numpy: Callable[[Any], np.ndarray] = np.asarray


def _prepare_torch(torch: Any, threads: int) -> None:
    torch.set_num_threads(threads)


PEERS = {
    "fdbr": Peer("fdbr"),
    "torch": Peer("torch", _prepare_torch, lambda tensor: tensor.detach().numpy()),
}


def load(name: str, threads: int) -> str | None:
    """Make a library ready; its version, or `None` where it is not installed."""
    peer = PEERS[name]
    try:
        module = importlib.import_module(peer.module)
    except ModuleNotFoundError as error:
        if error.name != peer.module:  # it is installed, and broken
            raise
        return None
    peer.prepare(module, threads)
    return str(getattr(module, "__version__", "?"))
