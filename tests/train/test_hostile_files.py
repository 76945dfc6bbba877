"""Files that are none of ours, or are no more: an error that names the file, and nothing else."""

import hashlib
import io
import json
import os
import pickle
import resource
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

import fdbr
from fdbr import nn, train
from fdbr.train.snapshots.header import Header
from fdbr.train.snapshots.leaves import Leaf

THOROUGH = settings.default.max_examples > 100
LIKE = {"w": np.arange(4, dtype=np.float32), "n": 5, "x": 0.5, "s": "word", "z": 1j, "none": None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "whole"
    train.save(path, LIKE)
    return path.read_bytes()


def refused(path, like=LIKE):
    """Whether a file is refused by its name, and stays as it is."""
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"^fdbr\.train\.load: ") as caught:
        train.load(path, like)
    assert path.name in str(caught.value)
    assert len(str(caught.value)) < 2000
    return path.read_bytes() == before


def test_each_bit_counts(whole, tmp_path):
    path = tmp_path / "damaged"
    for bit in range(0, 8 * len(whole), 1 if THOROUGH else 5):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(content)
        assert refused(path)


def test_each_byte_counts(whole, tmp_path):
    path = tmp_path / "short"
    for length in range(0, len(whole), 1 if THOROUGH else 2):
        path.write_bytes(whole[:length])
        assert refused(path)


def test_a_million_random_bytes_are_refused_in_little_memory(whole, tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "random"
    begin = whole[: 8 + int.from_bytes(whole[:8], "little")]
    tracemalloc.start()
    for i in range(1000 if THOROUGH else 100):
        content = random.bytes(1_000_000)
        forms = content, (900_000).to_bytes(8, "little") + content, begin + content, whole + content
        path.write_bytes(forms[i % 4])
        del content, forms
        tracemalloc.reset_peak()
        used = tracemalloc.get_traced_memory()[0]
        with pytest.raises(ValueError, match=r"^fdbr\.train\.load: .*random is "):
            train.load(path, LIKE)
        assert tracemalloc.get_traced_memory()[1] - used < 3_000_000
    tracemalloc.stop()


class Payload:
    """An object that does something when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def zipped(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", content)
    return file.getvalue()


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_files_of_other_kinds_are_refused_and_nothing_in_them_is_run(tmp_path):
    trap = tmp_path / "trap"
    pickled = pickle.dumps(Payload(trap))
    objects = npz(w=np.array([Payload(trap)], object))
    texts = b"", b"{}", b"\x93NUMPY", b"PK\x03\x04", json.dumps({"version": 1}).encode()
    path = tmp_path / "file"
    others = objects, npz(w=LIKE["w"]), save({"w": LIKE["w"]})
    for content in (pickled, zipped(pickled), *others, *texts):
        path.write_bytes(content)
        assert refused(path)
    assert not trap.exists()


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match="it is no regular file"):
            train.load(path, LIKE)
    with pytest.raises(IsADirectoryError, match=r"^fdbr\.train\.load: "):
        train.load(tmp_path, LIKE)


def test_another_version_is_said_to_be_one(tmp_path):
    header = {"version": 2, "checksum": "", "leaves": "of another form"}
    save_file({}, tmp_path / "new", metadata={"fdbr": json.dumps(header)})
    with pytest.raises(ValueError, match=r"new: it is of version 2 of the format.*reads version 1"):
        train.load(tmp_path / "new", LIKE)


@pytest.mark.parametrize(
    "leaf",
    [
        ["n", "int", "1e5"],
        ["n", "int", "9" * 5000],
        ["n", "int", "0x1"],
        ["n", "bool", "yes"],
        ["n", "float", "0.5"],
        ["n", "float", "0x1p+99999"],
        ["n", "complex", "0x1p+0"],
        ["n", "none", "more"],
    ],
)
def test_values_that_are_not_written_so_are_refused_though_the_checksum_is_right(tmp_path, leaf):
    header = {"version": 1, "checksum": "", "leaves": [leaf], "static": []}
    text = json.dumps(header, separators=(",", ":"))
    header["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(header, separators=(",", ":"))
    save_file({}, tmp_path / "lie", metadata={"fdbr": text})
    assert refused(tmp_path / "lie", {"n": 5})


def test_a_snapshot_of_another_version_is_passed_by_and_not_written_over(tmp_path):
    def run():
        reports = train.fit(
            lambda s, b: (s + b.sum(), {"loss": 0.5}),
            0.0,
            train.Batches(np.arange(6.0), size=2),
            epochs=4,
            resume=train.resume(tmp_path, like=0.0),
        )
        for _ in train.pipe(reports, train.snapshot(tmp_path, keep=2)):
            pass

    newer = tmp_path / "snapshot-0000000012.safetensors"
    header = {"version": 9, "checksum": "", "leaves": [], "static": []}
    save_file({}, newer, metadata={"fdbr": json.dumps(header)})
    content = newer.read_bytes()
    with pytest.raises(ValueError, match=r"none of the 1 snapshots .* version 9"):
        run()
    train.save(tmp_path / "snapshot-0000000003.safetensors", 1)  # nor is that one
    with pytest.raises(ValueError, match="none of the 2 snapshots"):
        run()
    (tmp_path / "snapshot-0000000003.safetensors").unlink()
    newer.rename(tmp_path / "aside")
    run()
    newer.rename(tmp_path / "twelve")
    (tmp_path / "aside").rename(newer)
    with pytest.warns(RuntimeWarning, match=r"000012.*goes on from .*000009"):
        run()
    (aside,) = tmp_path.glob("*.damaged")
    assert aside.read_bytes() == content
    assert train.resume(tmp_path, like=0.0).iteration == 12


def test_static_fields_are_compared(tmp_path):
    key = fdbr.random.key(0)
    model = nn.Sequential(nn.Conv2d.init(key, 1, 2, 3, stride=2), fdbr.ops.tanh)
    train.save(tmp_path / "a", model)
    assert train.load(tmp_path / "a", like=model) == model
    for other in (
        nn.Sequential(nn.Conv2d.init(key, 1, 2, 3, stride=1), fdbr.ops.tanh),
        nn.Sequential(nn.Conv2d.init(key, 1, 2, 3, stride=2), fdbr.ops.relu),
    ):
        with pytest.raises(ValueError, match=r"static fields that differ: .*\(file: .*, like: "):
            train.load(tmp_path / "a", like=other)


def test_loading_takes_the_memory_of_the_file(tmp_path):
    tree = {f"w{i}": np.zeros((1000, 500)) for i in range(4)}  # 16 MB
    tracemalloc.start()
    train.save(tmp_path / "a", tree)
    assert tracemalloc.get_traced_memory()[1] < 18e6
    tracemalloc.reset_peak()
    train.load(tmp_path / "a", tree)
    assert tracemalloc.get_traced_memory()[1] < 34e6
    tracemalloc.stop()


@pytest.mark.parametrize("function", ["save", "snapshot"])
def test_a_full_disk_is_said_to_be_one_and_leaves_what_was_there(tmp_path, function):
    small, large = {"w": np.zeros(10)}, {"w": np.zeros(1_000_000)}
    path = tmp_path / "a"

    def write(tree):
        if function == "save":
            return train.save(path, tree)
        reports = [train.Report(i, i, {"i": i}, tree, train.Position(i), 0.0) for i in (1, 2)]
        return list(train.pipe(reports, train.snapshot(path, overwrite=True)))

    write(small)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(OSError, match=rf"^fdbr\.train\.{function}: .*a.*: .*large"):
            write(large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    if function == "save":
        assert train.load(path, small)["w"].shape == (10,)
        assert list(tmp_path.iterdir()) == [path]
    else:
        assert train.resume(path, small).iteration == 2
        assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dict":[]}', '{"array":[3]}', "[" * 10_000])
def test_a_tree_that_looks_like_a_snapshot_is_none(tmp_path, text):
    path = tmp_path / "snapshot-0000000001.safetensors"
    train.save(path, {"report": text, "arrays": [], "state": 0.0})
    with pytest.raises(ValueError, match="no snapshot of a run"):
        train.resume(tmp_path, like=0.0)
    assert "no snapshot of a run" in train.snapshots(tmp_path)[0].damage


def lying(path, leaves, static=()):
    """A file without tensors whose header says something, with the right checksum."""
    header = {"version": 1, "checksum": "", "leaves": leaves, "static": list(static)}
    text = json.dumps(header, separators=(",", ":"))
    header["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(header, separators=(",", ":"))
    save_file({}, path, metadata={"fdbr": text})


@pytest.mark.parametrize(
    ("leaves", "static"),
    [
        ([[f"['state'][{i}]", "int", "7"] for i in range(15_000)], ()),
        ([[f"['state'][{i}]", "none"] for i in range(15_000)], ()),
        ([["w", "array", "float32", [0] * 400_000]], ()),
        ([["w", "str", "\u00fc" * 100_000]], ()),
        ([["w", "int", ["x"] * 150_000]], ()),
        ([["w", "int", "9" * 1_000_000]], ()),
        ([[["w"]] * 40_000], ()),
        ([], [[f"s{i}", "-1"] for i in range(25_000)]),
    ],
)
def test_a_header_takes_memory_in_proportion_to_its_file(tmp_path, leaves, static):
    path = tmp_path / "lie"
    lying(path, leaves, static)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"^fdbr\.train\.load: "):
            train.load(path, {"w": 1})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 10 * path.stat().st_size + 200_000


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.text(st.characters(), max_size=5), st.text(st.characters(), max_size=8)),
    st.dictionaries(st.text(st.characters(), max_size=5), st.text(st.characters(), max_size=8)),
)
def test_a_header_is_the_text_that_json_makes_of_it_and_is_read_back(values, static):
    leaves = [Leaf(path, "str", value=value) for path, value in values.items()]
    header = Header(leaves, static)
    whole = {
        "version": 1,
        "checksum": "0a",
        "leaves": [leaf.entry() for leaf in leaves],
        "static": [list(pair) for pair in static.items()],
    }
    assert header.text("0a") == json.dumps(whole, separators=(",", ":"))
    assert Header.parse(header.text("0a")) == (header, "0a")
