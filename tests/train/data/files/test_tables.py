"""Tables in files."""

import numpy as np
import pytest

from fdbr import train

arrow = pytest.importorskip("pyarrow")
csv, feather, ipc, parquet = (
    pytest.importorskip(f"pyarrow.{name}") for name in ("csv", "feather", "ipc", "parquet")
)
h5py = pytest.importorskip("h5py")

COLUMNS = {
    "x": np.array([1.5, np.nan, -2.0]),
    "n": np.array([3, 1, 2]),
    "b": np.array([True, False, True]),
    "s": np.array(["one", "two", "three"]),
}
TABLE = arrow.table(COLUMNS)


def stream(table, path):
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "t.csv": lambda table, path: csv.write_csv(table, path),
    "t.parquet": parquet.write_table,
    "t.feather": feather.write_feather,
    "t.arrow": stream,
}


@pytest.mark.parametrize("name", WRITERS)
def test_columns_are_arrays(name, tmp_path):
    WRITERS[name](TABLE, str(tmp_path / name))
    found = train.read_table(tmp_path / name)
    assert list(found) == list(COLUMNS)
    for key, column in COLUMNS.items():
        np.testing.assert_array_equal(found[key], column)
        assert found[key].dtype.kind == column.dtype.kind
        assert not found[key].flags.writeable
    assert list(train.read_table(tmp_path / name, columns=["n"])) == ["n"]
    next(iter(train.Batches(found, 2)))


def test_lines_of_json_and_a_format_that_the_name_does_not_tell(tmp_path):
    path = tmp_path / "lines"
    path.write_text('{"a": 1, "v": [1, 2]}\n{"a": 2, "v": [3, 4]}\n')
    found = train.read_table(path, format="json")
    assert found["a"].tolist() == [1, 2]
    assert found["v"].tolist() == [[1, 2], [3, 4]]


def test_lists_of_one_length_are_rows(tmp_path):
    kind = arrow.list_(arrow.float32(), 2)
    parquet.write_table(
        arrow.table({"v": arrow.array([[1, 2], [3, 4]], kind), "d": ["x", "y"]}),
        tmp_path / "t.parquet",
    )
    found = train.read_table(tmp_path / "t.parquet")
    assert found["v"].dtype == np.float32
    assert found["v"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_lists_of_lists_and_tables_without_rows_are_arrays(count, tmp_path):
    kinds = {
        "x": (arrow.list_(arrow.list_(arrow.int8())), [[1, 2, 3], [4, 5, 6]]),
        "y": (arrow.list_(arrow.list_(arrow.float32(), 2)), [[0.5, 1.0]]),
        "z": (arrow.list_(arrow.string()), ["ä", "bc"]),
    }
    columns = {name: arrow.array([row] * count, kind) for name, (kind, row) in kinds.items()}
    feather.write_feather(arrow.table(columns), tmp_path / "t.feather")
    found = train.read_table(tmp_path / "t.feather")
    for name, (_, row) in kinds.items():
        assert found[name].tolist() == [row] * count
    assert found["x"].dtype == np.int8
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"t\.csv: column 'a' has no values"):
        train.read_table(tmp_path / "t.csv")


def test_missing_values_are_filled_or_refused(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.table({"n": [1, None, 3], "x": [0.5, None, 1.0]}), path)
    with pytest.raises(ValueError, match=r"column 'n' \(int64\) has 1 missing values"):
        train.read_table(path)
    found = train.read_table(path, fill={"n": -1})
    assert found["n"].tolist() == [1, -1, 3]
    assert np.isnan(found["x"][1])
    with pytest.raises(ValueError, match=r"fill\['n'\] is 'no', but the column is of int64"):
        train.read_table(path, fill={"n": "no"})
    (tmp_path / "t.csv").write_text("a,b\n,1\n,2\n")
    assert train.read_table(tmp_path / "t.csv", fill={"a": 7})["a"].tolist() == [7, 7]


def test_lists_of_different_lengths_are_refused(tmp_path):
    parquet.write_table(arrow.table({"v": [[1], [2, 3]]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"lists of lengths \[1, 2\]"):
        train.read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.csv"])
def test_damaged_files_are_named(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](TABLE, str(path))
    content = path.read_bytes()
    path.write_bytes(content + b"1,2\n" if name == "t.csv" else content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{name} is no whole file"):
        train.read_table(path)


def test_other_errors_of_tables(tmp_path):
    with pytest.raises(FileNotFoundError):
        train.read_table(tmp_path / "no.csv")
    with pytest.raises(ValueError, match="give format="):
        train.read_table(tmp_path / "no.xls")
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(KeyError, match="no column 'z'"):
        train.read_table(tmp_path / "t.csv", columns=["z"])
    with pytest.raises(TypeError, match=r"give columns=\['a'\]"):
        train.read_table(tmp_path / "t.csv", columns="a")


def test_hdf5_is_read_when_asked_for_and_goes_to_processes(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(20.0).reshape(10, 2)
        file["part/y"] = np.arange(10)
        file["scalar"] = 3
    dataset = {**train.hdf5(path), **train.hdf5(path, ["part/y"])}
    assert list(dataset) == ["x", "part/y"]
    assert dataset["x"][:2].tolist() == [[0, 1], [2, 3]]
    batches = train.Batches(dataset, 4, sampler=lambda key, epoch: np.array([7, 0, 7, 3, 9]))
    first = next(iter(batches))
    assert first["part/y"].tolist() == [7, 0, 7, 3]
    assert (first["x"][:, 0] == 2 * first["part/y"]).all()
    read = train.prefetch(train.Batches(dataset, 4), 1, processes=True)
    assert [len(batch["x"]) for batch in read] == [4, 4, 2]
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.h5"):
        list(batches)


def test_what_is_no_hdf5_is_refused(tmp_path):
    path = tmp_path / "x.h5"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="no whole HDF5 file"):
        train.hdf5(path)
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    with pytest.raises(KeyError, match="no dataset 'y'"):
        train.hdf5(path, ["y"])
