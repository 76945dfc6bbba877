"""State dicts of PyTorch, as they are in memory and in files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fdbr.core.array_modules import is_array, lock
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.nn.formats.naming import Entry, entries, filled, host, without_prefix
from fdbr.nn.formats.safetensors_files import read_safetensors
from fdbr.nn.formats.torch_files import read_torch
from fdbr.pytrees.classes import fields_of

__all__ = ["load_torch_state", "save_torch_state", "torch_entries"]

_COUNT = "num_batches_tracked"
_NESTED = ("state_dict", "model_state_dict", "model")


def torch_entries(model: Any) -> list[Entry]:
    """Return the arrays of a model, with their names in PyTorch."""
    return entries(model, _names_of, ".")


def _names_of(node: Any) -> Mapping[str, Any]:
    found = getattr(node, "torch_names", None)
    return (found() if callable(found) else found) or {}


@public("fdbr.nn")
def load_torch_state(model: Any, state: Any, *, prefix: str = "", strict: bool = True) -> Any:
    """Return a model with the weights of a PyTorch module's state dict.

    Names are paths, written as PyTorch does: ``layers.0.weight`` is ``model.layers[0].weight``, and
    the members of a `Sequential` have their numbers alone.  A class whose fields have other names
    than PyTorch's gives these in ``torch_names``, a dict from fields to names: ``torch_names =
    {"proj": "out_proj"}``; an empty name adds nothing to the path, and `None` means that the field
    is in no state dict.  ``num_batches_tracked`` is ignored, and so are names that end in one of a
    class's ``torch_ignored``.

    Parameters
    ----------
    model
        The model into which weights are loaded: only its arrays are replaced.
    state
        A dict of arrays or tensors by name, such as ``module.state_dict()``; or the path of a
        ``.safetensors`` file, or of a ``.pt`` or ``.pth`` file that ``torch.save`` wrote, whose
        tensors are read without PyTorch and without running anything that is in the file.  In such
        a file the dict may be under the key ``state_dict``, ``model_state_dict`` or ``model``.
    prefix
        The beginning of the names to load, such as ``"module."`` or ``"backbone."``.  Names without
        it are left out.
    strict
        Whether names that are missing or unexpected are an error, or a warning.

    Returns
    -------
    model
        Its arrays are copies, read-only, of the array module and the dtype of the model's.

    Raises
    ------
    OSError
        If the file cannot be read.
    TypeError
        If ``state`` is something else.
    ValueError
        If a file is damaged, or holds other objects than tensors; or if its names or shapes are not
        those of the model: the message lists what is missing, unexpected and misshapen.

    Warns
    -----
    RuntimeWarning
        Without ``strict``, if names are missing or unexpected: the warning lists them.

    >>> import fdbr
    >>> import numpy as np
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> state = {"weight": np.array([[1.0, 2.0]]), "bias": np.array([3.0])}
    >>> fdbr.nn.load_torch_state(layer, state)
    Linear(weight=array([[1., 2.]], dtype=float32), bias=array([3.], dtype=float32))
    """
    endings = tuple(f".{ending}" for ending in _ignored(model))
    return filled(
        "load_torch_state",
        model,
        torch_entries(model),
        without_prefix(_arrays(state), prefix),
        ignored=lambda name: _is_count(name) or f".{name}".endswith(endings),
        optional=_is_count,
        strict=strict,
    )


def _ignored(part: Any) -> set[str]:
    """Return the endings of names that the classes of a model's parts ignore."""
    if isinstance(part, tuple | list):
        return set().union(*map(_ignored, part))
    if isinstance(part, dict):
        return _ignored(list(part.values()))
    fields = fields_of(type(part))
    if fields is None:
        return set()
    own = set(getattr(part, "torch_ignored", ()))
    return own | _ignored([getattr(part, name) for name in fields[0]])


def _is_count(name: str) -> bool:
    return name.rpartition(".")[2] == _COUNT


@public("fdbr.nn")
def save_torch_state(model: Any, path: str | Path | None = None) -> dict[str, Any]:
    """Return the state dict that PyTorch's module of the same layers loads.

    Names are those of `load_torch_state`.  Each ``running_mean`` is accompanied by a
    ``num_batches_tracked`` of 0, without which PyTorch loads no batch normalization.

    Parameters
    ----------
    model
        A model.
    path
        A ``.safetensors`` file to write, whole or not at all; ``safetensors.torch.load_file`` reads
        it.

    Returns
    -------
    dict
        Read-only NumPy arrays by name; ``load_state_dict`` takes ``{name: torch.tensor(value)}`` of
        it.

    Raises
    ------
    OSError
        If the file cannot be written.
    TypeError
        If an array is traced.
    ValueError
        If two arrays have one name, or ``path`` has the extension of files of ``torch.save``.

    >>> import fdbr
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> {name: value.shape for name, value in fdbr.nn.save_torch_state(layer).items()}
    {'weight': (1, 2), 'bias': (1,)}
    """
    state: dict[str, Any] = {}
    for entry in torch_entries(model):
        for name in entry.names:
            if name in state:
                raise ValueError(
                    f"fdbr.nn.save_torch_state: two arrays of the model are called {name!r}; give "
                    "other torch_names"
                )
            state[name] = lock(np.array(host("save_torch_state", name, entry.leaf), order="C"))
    for name in list(state):
        head, dot, last = name.rpartition(".")
        if last == "running_mean":
            state.setdefault(f"{head}{dot}{_COUNT}", lock(np.array(0, np.int64)))
    if path is not None:
        _write(Path(path), state)
    return state


def _write(path: Path, state: dict[str, Any]) -> None:
    if path.suffix in (".pt", ".pth", ".bin"):
        raise ValueError(
            f"fdbr.nn.save_torch_state: {path} is called as a file of torch.save, which only "
            "PyTorch writes; give a path that ends in .safetensors, or save the dict that is "
            "returned: torch.save({name: torch.tensor(value) for name, value in state.items()}, …)"
        )
    with replacing(path) as written:
        try:
            save_file(state, written, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(f"fdbr.nn.save_torch_state: {path}: {error}") from error


# --- state dicts ------------------------------------------------------------------


@attrs.frozen
class _Tensor:
    """A tensor of PyTorch, which is read when it is known to fit."""

    tensor: Any
    shape: tuple[int, ...]
    dtype: Any

    def read(self) -> Any:
        value = self.tensor.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy lacks it
            value = value.float()
        return value.resolve_conj().resolve_neg().numpy()


def _arrays(state: Any) -> Mapping[str, Any]:
    where = "fdbr.nn.load_torch_state"
    if isinstance(state, str | Path):
        return _of_file(Path(state))
    if not isinstance(state, Mapping):
        raise TypeError(
            f"{where}: state must be a dict of arrays by name, such as module.state_dict(), or the "
            f"path of a file, not {describe(state)}"
        )
    return _flat(where, state)


def _flat(where: str, state: Mapping[Any, Any]) -> dict[str, Any]:
    found = {}
    for name, value in state.items():
        if not isinstance(name, str):
            raise TypeError(f"{where}: names in a state dict are texts, not {name!r}")
        if hasattr(value, "detach") and not is_array(value):
            dtype = str(value.dtype).removeprefix("torch.").replace("bfloat16", "float32")
            found[name] = _Tensor(value, tuple(value.shape), np.dtype(dtype))
        elif is_array(value) or hasattr(value, "__array__"):
            found[name] = host("load_torch_state", name, value)
        elif hasattr(value, "read") and hasattr(value, "shape"):
            found[name] = value
        else:
            raise TypeError(
                f"{where}: {name} is {describe(value)}, and no array or tensor; give the dict that "
                "holds the arrays, such as checkpoint['state_dict']"
            )
    return found


def _of_file(path: Path) -> Mapping[str, Any]:
    with open(path, "rb") as file:
        first = file.read(9)
    if first[8:] == b"{":
        return read_safetensors("load_torch_state", path)
    found = read_torch("load_torch_state", path)
    for name in _NESTED:
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    if not isinstance(found, dict):
        raise ValueError(
            f"fdbr.nn.load_torch_state: {path} holds a {type(found).__name__}, and no state dict; "
            "save one with torch.save(module.state_dict(), path)"
        )
    try:
        return _flat("fdbr.nn.load_torch_state", found)
    except TypeError as error:
        raise ValueError(f"{error} (in {path})") from error
