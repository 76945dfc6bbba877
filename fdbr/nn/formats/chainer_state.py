"""Files of Chainer's ``save_npz``."""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import optree

from fdbr import tree
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.public import public
from fdbr.nn.formats.chainer_layouts import Layout, layout_of
from fdbr.nn.formats.naming import Entry, entries, filled, host, put, without_prefix
from fdbr.pytrees.classes import NAMESPACE, fields_of

__all__ = ["load_chainer_npz", "save_chainer_npz", "weights_of", "with_weights"]

_FIELDS = {"weight": "W", "bias": "b"}
_OF_NORMS = {
    "weight": "gamma",
    "bias": "beta",
    "num_batches_tracked": "N",
    "running_mean": "avg_mean",
    "running_var": "avg_var",
}
_OF_CLASSES: Mapping[str, Mapping[str, Any]] = {
    "Bias": {"bias": "b"},
    "BinaryHierarchicalSoftmax": {"weight": "W", "paths": None, "signs": None},
    "BlackOut": {"weight": "W", "sampler": None},
    "DecorrelatedBatchNorm": {**_OF_NORMS, "running_projection": "avg_projection"},
    "NegativeSampling": {"weight": "W", "sampler": None},
    "Parameter": {"array": "W"},
    "Scale": {"weight": "W", "bias": "bias/b"},
}


@attrs.frozen
class _Part:
    """One array of a model, or all arrays of a layer with its own layout."""

    names: tuple[str, ...]
    members: tuple[Entry, ...]
    layout: Layout | None = None
    older: tuple[str, ...] = ()

    def arrays(self, function: str) -> dict[str, Any]:
        """Return Chainer's arrays by their whole names."""
        if self.layout is None:
            (entry,) = self.members
            return {name: host(function, name, entry.leaf) for name in self.names}
        (prefix,) = self.names
        found = self.layout.there(self.own(function))
        return {f"{prefix}/{name}" if prefix else name: array for name, array in found.items()}

    def own(self, function: str) -> dict[str, Any]:
        """Return the layer's arrays by their paths in it."""
        return {e.rest: host(function, e.rest, e.leaf) for e in self.members}


def _names_of(node: Any) -> Mapping[str, Any]:
    own = getattr(node, "chainer_names", None)
    if own is not None:
        found: Mapping[str, Any] = own() if callable(own) else own
        return found
    kind = type(node)
    fields = fields_of(kind)
    if fields is None or not kind.__module__.startswith("fdbr.nn."):
        return {}
    if kind.__name__ in _OF_CLASSES:
        return _OF_CLASSES[kind.__name__]
    if "layers" in fields[0]:  # Chainer numbers links only, not functions
        numbered = [i for i, layer in enumerate(node.layers) if tree.leaves(layer)]
        return {f"layers[{i}]": str(number) for number, i in enumerate(numbered)}
    return _OF_NORMS if "Norm" in kind.__name__ or "running_mean" in fields[0] else _FIELDS


def _parts(model: Any) -> list[_Part]:
    found = entries(model, _names_of, "/", lambda node: layout_of(node) is not None)
    parts: list[_Part] = []
    layers: dict[tuple[int, tuple[str, ...]], list[Entry]] = {}
    for entry in found:
        if entry.names and entry.rest:
            layers.setdefault((id(entry.node), entry.names), []).append(entry)
        elif entry.names:
            parts.append(_Part(entry.names, (entry,), older=entry.older))
    for (_, names), members in layers.items():
        parts.append(_Part(names[:1], tuple(members), layout_of(members[0].node)))
    return parts


@public("fdbr.nn")
def save_chainer_npz(model: Any, path: str | Path, *, compression: bool = True) -> None:
    """Write the weights of a model to a file that Chainer's ``load_npz`` reads.

    Names are paths: ``conv/W`` and ``conv/b`` of a layer in the field ``conv``, ``bn/gamma``,
    ``bn/beta``, ``bn/avg_mean``, ``bn/avg_var`` and ``bn/N`` of a normalization, and the members of
    a `Sequential`, a tuple or a list have their numbers, where Chainer counts only members with
    arrays.  A class can give other names in ``chainer_names``, like ``torch_names`` for
    `save_torch_state`.

    Convolutions and fully connected layers have the same layout as in Chainer.  Recurrent cells are
    written as the links ``StatelessLSTM``, ``StatelessGRU`` (for a `GRUCell` with ``reset_first``),
    ``StatelessMGU`` and similar ones, which have one bias and another order of gates; `LSTM`, `GRU`
    and `RNN` as ``NStepLSTM`` and similar links.

    Parameters
    ----------
    model
        A model.
    path
        The file, which is written whole or not at all.
    compression
        Whether the file is compressed.

    Raises
    ------
    OSError
        If the file cannot be written.
    TypeError
        If an array is traced.
    ValueError
        If two arrays have one name.

    >>> import fdbr, pathlib, tempfile
    >>> import numpy as np
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "layer.npz")
    ...     fdbr.nn.save_chainer_npz(layer, path)
    ...     with np.load(path) as file:
    ...         print(file.files)
    ['W', 'b']
    """
    arrays = weights_of("save_chainer_npz", model)
    method = zipfile.ZIP_DEFLATED if compression else zipfile.ZIP_STORED
    with replacing(Path(path)) as written, zipfile.ZipFile(written, "w", method) as archive:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = method
            with archive.open(info, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def weights_of(function: str, model: Any) -> dict[str, Any]:
    """Return the weights of a model as NumPy arrays, by Chainer's names."""
    arrays: dict[str, Any] = {}
    for part in _parts(model):
        for name, array in part.arrays(function).items():
            if name in arrays:
                raise ValueError(
                    f"fdbr.nn.{function}: two arrays of the model are called {name!r}; give other "
                    "chainer_names"
                )
            arrays[name] = array
    for name in list(arrays):
        head, slash, last = name.rpartition("/")
        if last == "avg_mean":
            arrays.setdefault(f"{head}{slash}N", np.array(0))
    return {name: np.asarray(array) for name, array in arrays.items()}


@public("fdbr.nn")
def load_chainer_npz(model: Any, path: str | Path, *, prefix: str = "", strict: bool = True) -> Any:
    """Return a model with the weights of a file that Chainer's ``save_npz`` wrote.

    Names and layouts are those of `save_chainer_npz`.  A link whose arrays were not yet
    initialized, which Chainer writes as `None`, counts as missing; the counts ``N`` of
    normalizations are ignored.  Nothing in the file is unpickled.

    Parameters
    ----------
    model
        The model into which weights are loaded: only its arrays are replaced.
    path
        The file.
    prefix
        The path of the model's arrays in the file, such as ``"updater/model:main/"`` in a trainer's
        snapshot; nothing else is read.
    strict
        Whether names that are missing or unexpected are an error, or a warning.

    Returns
    -------
    model
        Its arrays are read-only, of the array module and the dtype of the model's.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is damaged or not an npz file; or if its names or shapes are not those of the model:
        the message lists what is missing, unexpected and misshapen.

    Warns
    -----
    RuntimeWarning
        Without ``strict``, if names are missing or unexpected: the warning lists them.

    >>> import fdbr, pathlib, tempfile
    >>> import numpy as np
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "layer.npz")
    ...     np.savez(path, W=np.ones((1, 2)), b=np.zeros(1))
    ...     fdbr.nn.load_chainer_npz(layer, path)
    Linear(weight=array([[1., 1.]], dtype=float32), bias=array([0.], dtype=float32))
    """
    return with_weights("load_chainer_npz", model, _members(Path(path)), prefix, strict)


def with_weights(
    function: str, model: Any, stored: Mapping[str, Any], prefix: str, strict: bool
) -> Any:
    """Return a model with the weights stored under Chainer's names after a prefix."""
    given = without_prefix(stored, prefix)
    parts = _parts(model)
    like: dict[str, Any] = {}
    older: dict[str, tuple[str, ...]] = {}
    for part in parts:
        like |= part.arrays(function)
        older |= dict.fromkeys(part.names, part.older)
    wanted = [
        Entry(i, (name,), array, older=older.get(name, ()))
        for i, (name, array) in enumerate(like.items())
    ]
    for entry in wanted:
        for name in entry.names + entry.older:
            if name in given and (*given[name].shape, 1, 1) == entry.leaf.shape:
                given[name] = _Kernel(given[name])
    found = dict(
        zip(
            like,
            filled(
                function,
                list(like.values()),
                wanted,
                given,
                ignored=_is_count,
                optional=_is_count,
                strict=strict,
                depth=5,
            ),
            strict=True,
        )
    )
    leaves, structure = optree.tree_flatten(model, namespace=NAMESPACE)
    for part in parts:
        if part.layout is None:
            (entry,) = part.members
            leaves[entry.number] = put(found[part.names[0]], entry.leaf)
            continue
        start = f"{part.names[0]}/" if part.names[0] else ""
        theirs = {n.removeprefix(start): found[n] for n in part.arrays(function)}
        made = part.layout.back(theirs, part.own(function))
        for entry in part.members:
            leaves[entry.number] = put(made[entry.rest], entry.leaf)
    return optree.tree_unflatten(structure, leaves)


@attrs.frozen
class _Kernel:
    """The matrix of a fully connected layer, as the weight of a convolution with 1x1 kernels."""

    matrix: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.matrix.shape, 1, 1)

    @property
    def dtype(self) -> Any:
        return self.matrix.dtype

    def read(self) -> Any:
        matrix = self.matrix.read() if hasattr(self.matrix, "read") else self.matrix
        return matrix.reshape(self.shape)


def _is_count(name: str) -> bool:
    return name.rpartition("/")[2] == "N"


# --- the file -----------------------------------------------------------------------


@attrs.frozen
class _Member:
    """An array in a file, which is read lazily."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: Any

    def read(self) -> Any:
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.name) as file:
                return np.lib.format.read_array(file, allow_pickle=False)
        except _DAMAGES as error:
            raise ValueError(f"{self.path} is damaged at {self.name}: {error}") from error


_DAMAGES = (
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, RecursionError),
    *(ValueError, TypeError, KeyError, IndexError, OverflowError, SyntaxError, MemoryError),
    *(OSError, struct.error),  # for offsets outside the file
)


def _members(path: Path) -> dict[str, _Member]:
    found = {}
    with open(path, "rb"):  # a file that is missing is an OSError
        pass
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{info.filename} is compressed as no npz file is")
                with archive.open(info) as file:
                    shape, dtype = _header(file)
                if dtype != np.dtype(object):  # Chainer stores None as an object array
                    name = info.filename.removesuffix(".npy")
                    found[name] = _Member(path, info.filename, shape, dtype)
    except _DAMAGES as error:
        raise ValueError(
            f"fdbr.nn.load_chainer_npz: {path} is no npz file, or is damaged: {error}"
        ) from error
    return found


def _header(file: Any) -> tuple[tuple[int, ...], Any]:
    version = np.lib.format.read_magic(file)
    if version != (1, 0):  # other versions only serve long headers, which plain numbers never need
        raise ValueError(f"it has an array in version {version} of the format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    return shape, dtype
