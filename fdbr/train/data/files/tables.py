"""Tables: CSV, JSON lines, Parquet and Arrow files through pyarrow, HDF5 through h5py."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.core.array_modules import lock
from fdbr.core.devices import optional
from fdbr.errors.public import public

__all__ = ["hdf5", "read_table"]

_FORMATS = {
    "csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json", "parquet": "parquet",
    "pq": "parquet", "feather": "arrow", "arrow": "arrow", "ipc": "arrow",
}  # fmt: skip


@public("fdbr.train")
def read_table(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    fill: Mapping[str, Any] | None = None,
    format: str | None = None,
) -> dict[str, Any]:
    r"""The columns of a table in a file, as a dataset: a dict of arrays.

    Parameters
    ----------
    path
        A file of CSV (the first line names the columns; ``.tsv`` has tabs), lines of JSON,
        Parquet, or Arrow (its file or stream format, which Feather is).
    columns
        The columns to read; all by default.
    fill
        For columns with missing values, what stands for them.
    format
        ``"csv"``, ``"json"``, ``"parquet"`` or ``"arrow"``, where the name does not tell.

    Returns
    -------
    dict
        An array for each column: numbers, truth values, dates, strings (of dtype ``str``), and
        lists of one length, which are rows of an array of two axes.

    Raises
    ------
    OSError
        If the file cannot be read.
    ImportError
        If pyarrow is not installed (``pip install 'fdbr[data]'``).
    ValueError
        If the file is damaged or of another format, a column has missing values that are not
        filled (those of floating numbers are NaN), or is no column of an array.
    KeyError
        If there is no such column.

    >>> import pathlib, tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "people.csv")
    ...     _ = path.write_text("name,height\nAnn,1.75\nBob,1.8\n")
    ...     train.read_table(path)["height"]
    array([1.75, 1.8 ])
    """
    where = f"fdbr.train.read_table: {path}"
    chosen = format or _FORMATS.get(Path(path).suffix[1:].lower())
    if chosen not in set(_FORMATS.values()):
        raise ValueError(
            f"{where}: {'its name' if format is None else f'format={format!r}'} tells none of the "
            "formats csv, json, parquet and arrow; give format="
        )
    with open(path, "rb"):
        pass  # an error of the system, if there is one
    arrow = optional("train.read_table", "pyarrow", "data")
    try:
        table = _read(arrow, str(path), str(chosen))
    except (arrow.ArrowInvalid, arrow.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"{where} is no whole file of {chosen}: {error}") from error
    names = table.column_names if columns is None else _names("read_table", columns)
    for name in (*names, *(fill or {})):
        if name not in table.column_names:
            raise KeyError(f"{where} has no column {name!r}, but {table.column_names}")
    if len(set(table.column_names)) < len(table.column_names):
        raise ValueError(f"{where} has two columns of one name: {table.column_names}")
    found = {name: _column(arrow, where, name, table[name], fill or {}) for name in names}
    return {name: lock(array) for name, array in found.items()}


def _read(arrow: Any, path: str, chosen: str) -> Any:
    if chosen == "csv":
        csv = optional("train.read_table", "pyarrow.csv", "data")
        delimiter = "\t" if path.lower().endswith(".tsv") else ","
        return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=delimiter))
    if chosen == "json":
        return optional("train.read_table", "pyarrow.json", "data").read_json(path)
    if chosen == "parquet":
        return optional("train.read_table", "pyarrow.parquet", "data").read_table(path)
    ipc = optional("train.read_table", "pyarrow.ipc", "data")
    with arrow.memory_map(path) as source:
        try:
            return ipc.open_file(source).read_all()
        except arrow.ArrowInvalid:
            source.seek(0)
            return ipc.open_stream(source).read_all()


def _column(arrow: Any, where: str, name: str, column: Any, fill: Mapping[str, Any]) -> Any:
    types = arrow.types
    if name in fill:
        column = _filled(arrow, where, name, column, fill[name])
    if column.null_count and not types.is_floating(column.type):
        raise ValueError(
            f"{where}: column {name!r} ({column.type}) has {column.null_count} missing values; say "
            f"what stands for them, fill={{{name!r}: …}}, or leave it out with columns="
        )
    if _is_any(types, column.type, "list", "large_list"):
        lengths = {len(row) for row in column} or {0}
        if len(lengths) != 1:
            raise ValueError(
                f"{where}: column {name!r} has lists of lengths {sorted(lengths)[:5]}, which "
                "make no array; datasets.Dataset of Hugging Face reads such files row by row, and "
                "is a dataset for Batches"
            )
        return _rows(arrow, where, name, column, lengths.pop())
    if types.is_fixed_size_list(column.type):
        return _rows(arrow, where, name, column, column.type.list_size)
    if _is_any(types, column.type, "string", "large_string", "string_view"):
        return np.array(column.to_pylist(), dtype=str)
    if types.is_dictionary(column.type):
        return _column(arrow, where, name, column.cast(column.type.value_type), {})
    if types.is_null(column.type):
        raise ValueError(f"{where}: column {name!r} has no values")
    values = None
    if not _is_any(types, column.type, "nested", "interval"):
        values = column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(False)
    if values is None or values.dtype.hasobject:
        raise ValueError(f"{where}: column {name!r} of {column.type} makes no array of numbers")
    return values.copy()


def _filled(arrow: Any, where: str, name: str, column: Any, value: Any) -> Any:
    """The column with a value for what is missing."""
    try:
        if arrow.types.is_null(column.type):
            return arrow.array([value] * len(column))
        return column.fill_null(value)
    except (arrow.ArrowInvalid, arrow.ArrowException) as error:
        raise ValueError(
            f"{where}: fill[{name!r}] is {value!r}, but the column is of {column.type}"
        ) from error


def _rows(arrow: Any, where: str, name: str, column: Any, length: int) -> Any:
    """A column of lists of one length, as an array with one axis more."""
    count = len(column)
    whole = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    values = _column(arrow, where, name, whole.flatten(), {})
    return values.reshape(count, length, *values.shape[1:])


def _is_any(types: Any, one: Any, *names: str) -> bool:
    """Whether a type is one of these, of which an older pyarrow does not know all."""
    return any(getattr(types, f"is_{name}", lambda _: False)(one) for name in names)


def _names(function: str, columns: Any) -> list[str]:
    if isinstance(columns, str):
        raise TypeError(
            f"fdbr.train.{function}: columns must be a list of names, got {columns!r}; give "
            f"columns=[{columns!r}]"
        )
    return list(columns)


# --- HDF5 ---------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Column:
    """A dataset in an HDF5 file: it reads as an array does, and opens the file to do so.

    It goes to other processes by the names of file and dataset.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: Any

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        h5py = optional("train.hdf5", "h5py", "data")
        with _opened(h5py, self.path) as file:
            return file[self.name][key]


def _opened(h5py: Any, path: str) -> Any:
    with open(path, "rb"):
        pass  # an error of the system, if there is one
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"fdbr.train.hdf5: {path} is no whole HDF5 file: {error}") from error


@public("fdbr.train")
def hdf5(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The datasets in an HDF5 file, as a dataset: a dict of what reads as arrays do.

    Nothing is read before it is asked for, and no more than a batch needs.

    Parameters
    ----------
    path
        The file.
    columns
        The names of datasets in it, such as ``"train/images"``; by default all of the root that
        have an axis.

    Returns
    -------
    dict
        For `Batches`, or to be indexed: ``hdf5(path)["x"][:100]``.

    Raises
    ------
    OSError
        If the file cannot be read.
    ImportError
        If h5py is not installed (``pip install 'fdbr[data]'``).
    KeyError
        If there is no such dataset.
    ValueError
        If it is no HDF5 file.
    """
    h5py = optional("train.hdf5", "h5py", "data")
    with _opened(h5py, str(path)) as file:
        if columns is None:
            chosen = [name for name in file if getattr(file.get(name), "shape", None)]
        else:
            chosen = _names("hdf5", columns)
        found = {}
        for name in chosen:
            if not getattr(file.get(name), "shape", None):
                raise KeyError(
                    f"fdbr.train.hdf5: {path} has no dataset {name!r} with an axis, but "
                    f"{sorted(file)}"
                )
            found[name] = Column(str(path), name, file[name].shape, file[name].dtype)
    if not found:
        raise ValueError(f"fdbr.train.hdf5: {path} has no dataset in its root; give columns=")
    return found
