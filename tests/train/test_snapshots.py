"""Trees in files: what is read is what was written, and nothing else is read."""

import collections
import json
import os
import types
import typing

import attrs
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import save_file

import fdbr
from fdbr import nn, train, tree

DTYPES = [
    *"bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split(),
    *"float16 float32 float64 complex64 complex128".split(),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    *(">f4", ">c8"),
]


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    data = draw(st.binary(min_size=8, max_size=8))
    count = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "b":
        return (np.resize(np.frombuffer(data, np.uint8), count) % 2 == 1).reshape(shape)
    array = np.resize(np.frombuffer(data, np.uint8), count).view(dtype).reshape(shape)
    return draw(st.sampled_from([array, array.T, array[..., None][..., 0]]))


texts = st.text(st.characters(), max_size=4)  # surrogates, too
numbers = st.one_of(
    st.booleans(), st.integers(), st.just(-(10**300)), st.floats(), st.complex_numbers(), texts
)
leaves = st.one_of(st.none(), numbers, arrays(), st.just(np.float32(2.5)), st.just(np.uint8(3)))
trees = st.recursive(
    leaves,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.dictionaries(texts, inside, max_size=3),
        st.tuples(inside, inside),
    ),
    max_leaves=6,
)


def native(leaf):
    """A leaf as it is read: in the byte order of the machine."""
    return leaf.astype(leaf.dtype.newbyteorder("=")) if isinstance(leaf, np.ndarray) else leaf


def alike(a, b):
    """Whether two leaves are the same, bit by bit."""
    if hasattr(a, "dtype"):
        same = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return same and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)


@given(trees)
@settings(deadline=None)
def test_what_is_read_is_what_was_written_bit_by_bit(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    train.save(path, value)
    found = train.load(path, like=value)
    assert tree.structure(found) == tree.structure(value)
    for ours, theirs in zip(tree.leaves(found), tree.leaves(value), strict=True):
        assert alike(ours, native(theirs))
        if isinstance(ours, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                ours[...] = 0


def test_one_tree_gives_one_file(tmp_path):
    value = {"w": np.ones(3), "b": 1.0, "n": None}
    train.save(tmp_path / "a", value)
    train.save(str(tmp_path / "b"), value)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_programs_can_read_the_arrays(tmp_path):
    train.save(tmp_path / "a", {"layers": [np.arange(3.0)]})
    with safe_open(tmp_path / "a", framework="np") as file:
        assert list(file.keys()) == ["['layers'][0]"]
        assert file.get_tensor("['layers'][0]").tolist() == [0.0, 1.0, 2.0]


def test_the_arrays_are_of_the_module_of_like(tmp_path, xp):
    value = {"w": xp.asarray(np.arange(3.0)), "n": 3}
    train.save(tmp_path / "a", value)
    found = train.load(tmp_path / "a", like=value)
    assert type(found["w"]) is type(value["w"])
    assert fdbr.backend.to_numpy(found["w"]).tolist() == [0.0, 1.0, 2.0]
    assert type(train.load(tmp_path / "a", like={"w": np.zeros(3), "n": 0})["w"]) is np.ndarray


def test_like_may_hold_shapes(tmp_path):
    train.save(tmp_path / "a", [np.ones((2, 3), np.float32)])
    for like in (
        np.broadcast_to(np.float32(0), (2, 3)),
        types.SimpleNamespace(shape=(2, 3), dtype="float32"),
        types.SimpleNamespace(shape=[2, 3]),
    ):
        (found,) = train.load(tmp_path / "a", like=[like])
        assert found.tolist() == [[1.0] * 3] * 2
    with pytest.raises(ValueError, match=r"file: float32\[2,3\], like: float64\[2,3\]"):
        train.load(tmp_path / "a", like=[types.SimpleNamespace(shape=(2, 3), dtype=np.float64)])


def test_the_error_lists_what_is_missing_unexpected_and_misshapen(tmp_path):
    train.save(tmp_path / "a", {"a": np.ones(2), "b": 1, "c": None, "d": np.ones(2)})
    with pytest.raises(ValueError, match=r"^fdbr\.train\.load: ") as caught:
        train.load(tmp_path / "a", like={"a": np.ones(3), "b": 1.0, "c": 1, "e": 0})
    text = str(caught.value)
    assert "missing: ['e']" in text
    assert "unexpected: ['d']" in text
    assert "['a'] (file: float64[2], like: float64[3])" in text
    assert "['b'] (file: int, like: float)" in text
    assert "['c'] (file: None, like: int)" in text


def test_a_long_list_of_differences_is_cut(tmp_path):
    train.save(tmp_path / "a", list(range(100)))
    with pytest.raises(ValueError, match="and 80 more"):
        train.load(tmp_path / "a", like=[])


@pytest.mark.parametrize(
    "leaf",
    [
        object(),
        np.array(["a"]),
        np.array([None]),
        np.zeros(1, "datetime64[D]"),
        np.zeros(1, np.longdouble),
        np.zeros(1, "f4,i4"),
    ],
)
def test_other_leaves_are_refused_by_their_path(tmp_path, leaf):
    with pytest.raises(TypeError, match=r"^fdbr\.train\.save: the leaf \['x'\]\[0\] is "):
        train.save(tmp_path / "a", {"x": [leaf]})
    with pytest.raises(TypeError, match="traced value"):
        fdbr.grad(lambda x: train.save(tmp_path / "a", [x]))(1.0)
    assert not list(tmp_path.iterdir())


def test_paths_that_are_written_alike_are_refused(tmp_path):
    @attrs.frozen
    class Key:
        n: int = attrs.field(repr=False)

        def __lt__(self, other):
            return self.n < other.n

    with pytest.raises(ValueError, match="stands for two things"):
        train.save(tmp_path / "a", {Key(1): 1, Key(2): 2})


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a"
    train.save(path, 1)

    def fail(*args):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        train.save(path, 2)
    assert train.load(path, like=0) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_the_permissions_of_new_files(tmp_path):
    (tmp_path / "usual").touch()
    train.save(tmp_path / "a", 1)
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_link_is_followed_and_a_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    train.save(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink()
    assert train.load(tmp_path / "file", like=0) == 1
    with pytest.raises(IsADirectoryError, match=r"^fdbr\.train\.save: "):
        train.save(tmp_path, 1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"^fdbr\.train\.save: .*pipe is no regular file"):
        train.save(tmp_path / "pipe", 1)
    with pytest.raises(FileNotFoundError, match=r"^fdbr\.train\.save: "):
        train.save(tmp_path / "none" / "a", 1)
    with pytest.raises(FileNotFoundError, match=r"^fdbr\.train\.load: "):
        train.load(tmp_path / "none", 1)


# --- files that are none ------------------------------------------------------------

LIKE = {"w": np.arange(4, dtype=np.float32), "n": 5, "x": 0.5, "s": "word"}


@pytest.fixture
def whole(tmp_path):
    train.save(tmp_path / "whole", LIKE)
    return tmp_path / "whole"


def test_every_bit_counts(whole, tmp_path):
    content = whole.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"^fdbr\.train\.load: "):
            train.load(tmp_path / "damaged", LIKE)


def test_every_byte_counts(whole, tmp_path):
    content = whole.read_bytes()
    for length in range(0, len(content), 3):
        (tmp_path / "short").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"^fdbr\.train\.load: "):
            train.load(tmp_path / "short", LIKE)
    (tmp_path / "long").write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="damaged"):
        train.load(tmp_path / "long", LIKE)


@given(st.binary(max_size=64), st.booleans())
@settings(deadline=None, max_examples=200)
def test_random_bytes_are_refused(tmp_path_factory, content, framed):
    path = tmp_path_factory.getbasetemp() / "random"
    path.write_bytes(len(content).to_bytes(8, "little") * framed + content)
    with pytest.raises(ValueError, match=r"^fdbr\.train\.load: "):
        train.load(path, LIKE)


HEADERS = [
    [],
    {},
    {"version": 1},
    {"version": 2, "checksum": "", "leaves": []},
    {"version": "1", "checksum": "", "leaves": []},
    {"version": 1, "checksum": 3, "leaves": 7},
    {"version": 1, "checksum": "", "leaves": [[]]},
    {"version": 1, "checksum": "", "leaves": [[["w"], "int", "1"]]},
    {"version": 1, "checksum": "", "leaves": [["w", "int", [1]]]},
    {"version": 1, "checksum": "", "leaves": [["w", "object", "x"]]},
    {"version": 1, "checksum": "", "leaves": [["w", "array", "float32", [4]]]},
    {"version": 1, "checksum": "", "leaves": [["w", "array", "float32", [2**70]]]},
    {"version": 1, "checksum": "", "leaves": [["w", "array", "object", [4]]]},
    {"version": 1, "checksum": "", "leaves": [["w", "array", "float64", ["4"]]]},
    {"version": 1, "checksum": "", "leaves": [["w", "int", "1"], ["w", "int", "1"]]},
]


@pytest.mark.parametrize("header", [json.dumps(h, separators=(",", ":")) for h in HEADERS])
def test_headers_that_lie_are_refused(tmp_path, header):
    for tensors in ({}, {"w": np.zeros(4)}):
        save_file(tensors, tmp_path / "a", metadata={"fdbr": header})
        for like in ({}, LIKE, types.SimpleNamespace(shape=(4,))):
            with pytest.raises(ValueError, match=r"^fdbr\.train\.load: "):
                train.load(tmp_path / "a", like)


def test_a_header_nested_without_end_or_too_long_is_refused(tmp_path):
    save_file({}, tmp_path / "a", metadata={"fdbr": "[" * 200_000})
    with pytest.raises(ValueError, match="damaged"):
        train.load(tmp_path / "a", LIKE)
    (tmp_path / "b").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match="no safetensors header"):
        train.load(tmp_path / "b", LIKE)


def test_files_of_others_and_of_other_versions_are_refused_by_name(tmp_path):
    save_file({"w": np.zeros(4)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"none of train\.save.*load_torch_state"):
        train.load(tmp_path / "other", LIKE)
    save_file({}, tmp_path / "new", metadata={"fdbr": json.dumps(HEADERS[3])})
    with pytest.raises(ValueError, match="version 2 of the format"):
        train.load(tmp_path / "new", {})


def test_a_model_goes_on_where_it_was(tmp_path):
    model = nn.Linear.init(fdbr.random.key(0), 3, 2)
    optimizer = train.optim.adam(1e-3)
    state = model, optimizer.init(model)
    train.save(tmp_path / "a", state)
    fresh = nn.Linear.init(fdbr.random.key(1), 3, 2)
    assert train.load(tmp_path / "a", like=(fresh, optimizer.init(fresh))) == state


class Moments(typing.NamedTuple):
    mu: object
    count: object


@fdbr.frozen
class Everything:
    weights: object
    running: object = fdbr.buffer()
    axis: int = fdbr.static(default=-1)
    act: object = fdbr.static(default=np.tanh)


def test_a_state_may_be_made_of_anything_that_states_are_made_of(tmp_path, xp):
    key = fdbr.random.key(3)
    grid = np.arange(12.0).reshape(3, 4)
    state = (
        Everything({"w": xp.asarray(grid), "b": None}, [xp.asarray(np.zeros(()))], axis=1),
        Moments(mu=(grid.T, grid[:, ::2], grid[::-1], np.broadcast_to(1.5, (2, 3))), count=7),
        collections.OrderedDict(b=np.zeros((0, 3), "complex64"), a=np.array(2 + 1j)),
        collections.defaultdict(
            list, key=key, word="ü", yes=True, none=None, far=-1e300, big=2**80
        ),
        collections.deque([np.float32(2.5), np.bool_(True), ml_dtypes.bfloat16(1.5)]),
        {
            "empty": {},
            "nothing": (),
            "bits": np.ones(3, ml_dtypes.bfloat16),
            3: np.int8(4),
            (1, 2): 1,
        },
    )
    train.save(tmp_path / "a", state)
    found = train.load(tmp_path / "a", like=state)
    assert tree.structure(found) == tree.structure(state)
    assert type(found[0].weights["w"]) is type(xp.asarray(grid))
    host = fdbr.backend.to_numpy
    for ours, theirs in zip(tree.leaves(found), tree.leaves(state), strict=True):
        if hasattr(theirs, "shape"):
            ours, theirs = host(ours), host(theirs)
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert ours.tobytes() == theirs.tobytes()
        else:
            assert alike(ours, theirs)
    with pytest.raises(ValueError, match=r"differ: \[0\]\.axis \(file: 1, like: -1\)"):
        train.load(tmp_path / "a", like=(tree.replace(state[0], axis=-1), *state[1:]))
    with pytest.raises(ValueError, match=r"differ: \[0\]\.act \(file: tanh, like: sin\)"):
        train.load(tmp_path / "a", like=(tree.replace(state[0], act=np.sin), *state[1:]))
