"""Files of Chainer's ``save_hdf5``."""

from pathlib import Path
from typing import Any

import attrs

from fdbr.core.devices import optional
from fdbr.core.util.atomic_write import replacing
from fdbr.errors.public import public
from fdbr.nn.formats.chainer_state import weights_of, with_weights

__all__ = ["load_chainer_hdf5", "save_chainer_hdf5"]


@public("fdbr.nn")
def save_chainer_hdf5(model: Any, path: str | Path, *, compression: int = 4) -> None:
    """Write the weights of a model to a file that Chainer's ``load_hdf5`` reads.

    Names and layouts are those of `save_chainer_npz`; each array is a data set, in groups named by
    the parts of its path.

    Parameters
    ----------
    model
        A model.
    path
        The file, which is written whole or not at all.
    compression
        From 0, for none, to 9.

    Raises
    ------
    ImportError
        If h5py is not installed.
    OSError
        If the file cannot be written.
    TypeError
        If an array is traced.
    ValueError
        If two arrays have one name, or one has no name of its own.

    >>> import fdbr, pathlib, tempfile
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "layer.h5")
    ...     fdbr.nn.save_chainer_hdf5(layer, path)
    ...     fdbr.nn.load_chainer_hdf5(layer, path) == layer
    True
    """
    h5py = optional("nn.save_chainer_hdf5", "h5py", "hdf5")
    arrays = weights_of("save_chainer_hdf5", model)
    with replacing(Path(path)) as written, h5py.File(written, "w") as file:
        for name, array in arrays.items():
            if not name:
                raise ValueError(
                    "fdbr.nn.save_chainer_hdf5: the model is a bare array, which has no name; put "
                    "it into a dict"
                )
            settings = {"compression": compression} if array.size > 1 and compression else {}
            file.create_dataset(name, data=array, **settings)


@public("fdbr.nn")
def load_chainer_hdf5(
    model: Any, path: str | Path, *, prefix: str = "", strict: bool = True
) -> Any:
    """Return a model with the weights of a file that Chainer's ``save_hdf5`` wrote.

    Names, layouts and arguments are those of `load_chainer_npz`.  Data sets in other files are not
    followed.

    Parameters
    ----------
    model
        The model into which weights are loaded: only its arrays are replaced.
    path
        The file.
    prefix
        The path of the model's arrays in the file, such as ``"updater/model:main/"``.
    strict
        Whether names that are missing or unexpected are an error, or a warning.

    Returns
    -------
    model
        Its arrays are read-only, of the array module and the dtype of the model's.

    Raises
    ------
    ImportError
        If h5py is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it is damaged or not an HDF5 file; or if its names or shapes are not those of the model:
        the message lists what is missing, unexpected and misshapen.

    Warns
    -----
    RuntimeWarning
        Without ``strict``, if names are missing or unexpected: the warning lists them.

    >>> import fdbr, pathlib, tempfile
    >>> import numpy as np
    >>> layer = fdbr.nn.Linear.init(fdbr.random.key(0), 2, 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "layer.h5")
    ...     fdbr.nn.save_chainer_hdf5({"first": layer, "second": layer}, path)
    ...     fdbr.nn.load_chainer_hdf5(layer, path, prefix="second/") == layer
    True
    """
    h5py = optional("nn.load_chainer_hdf5", "h5py", "hdf5")
    return with_weights("load_chainer_hdf5", model, _data_sets(h5py, Path(path)), prefix, strict)


@attrs.frozen
class _Stored:
    """An array in a file, which is read lazily."""

    h5py: Any
    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: Any

    def read(self) -> Any:
        try:
            with self.h5py.File(self.path, "r") as file:
                return file[self.name][()]
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            raise ValueError(f"{self.path} is damaged at {self.name}: {error}") from error


def _data_sets(h5py: Any, path: Path) -> dict[str, _Stored]:
    """Return the arrays in a file by name, without those that represent `None`."""
    found: dict[str, _Stored] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or item.shape is None:
            return
        if item.is_virtual or item.external:
            raise ValueError(f"{name} lies in another file")
        found[name] = _Stored(h5py, path, name, item.shape, item.dtype)

    with open(path, "rb"):  # a file that is missing is an OSError
        pass
    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise ValueError(
            f"fdbr.nn.load_chainer_hdf5: {path} is no HDF5 file, or is damaged: {error}"
        ) from error
    return found
