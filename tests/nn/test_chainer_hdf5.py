"""Weights in the files of Chainer's ``save_hdf5``."""

import sys

import numpy as np
import pytest

import fdbr
from fdbr import nn, tree
from nn.layer_cases import CASES
from nn.test_chainer_npz import net, same

h5py = pytest.importorskip("h5py")


@pytest.mark.parametrize("case", CASES[::6], ids=repr)
def test_every_layer_is_loaded_from_what_was_saved(case, tmp_path):
    layer = case.make("float32")
    nn.save_chainer_hdf5(layer, tmp_path / "a.h5")
    zeroed = tree.map(lambda leaf: leaf * 0, tree.trainable(layer))
    same(nn.load_chainer_hdf5(tree.combine(zeroed, layer), tmp_path / "a.h5"), layer)


@pytest.mark.parametrize("compression", [0, 4])
def test_names_are_those_of_the_npz_file(tmp_path, compression):
    nn.save_chainer_npz(net(), tmp_path / "a.npz")
    nn.save_chainer_hdf5(net(), tmp_path / "a.h5", compression=compression)
    with np.load(tmp_path / "a.npz") as npz, h5py.File(tmp_path / "a.h5") as file:
        for name in npz.files:
            np.testing.assert_array_equal(npz[name], file[name][()])
        assert file["l1/W"].compression == ("gzip" if compression else None)
    loaded = nn.load_chainer_hdf5(net(fdbr.random.key(2)), tmp_path / "a.h5")
    assert loaded == net()


def test_a_part_of_a_file_as_chainer_writes_it_is_read(tmp_path):
    layer = nn.Linear.init(fdbr.random.key(0), 3, 2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        model = file.create_group("updater").create_group("model:main")
        model.create_dataset("W", data=layer.weight, compression=4)
        model.create_dataset("b", data=layer.bias)
        model["none"] = h5py.Empty("f")  # as None is written
        file["updater/epoch"] = 3
    zero = tree.map(np.zeros_like, layer)
    prefix = "updater/model:main/"
    assert nn.load_chainer_hdf5(zero, tmp_path / "a.h5", prefix=prefix) == layer
    with pytest.raises(ValueError, match=r"^fdbr\.nn\.load_chainer_hdf5: .*missing: W, b"):
        nn.load_chainer_hdf5(zero, tmp_path / "a.h5")


def test_other_files_are_refused(tmp_path):
    layer = nn.Linear.init(fdbr.random.key(0), 3, 2)
    path = tmp_path / "a.h5"
    with pytest.raises(FileNotFoundError, match=r"^fdbr\.nn\.load_chainer_hdf5: "):
        nn.load_chainer_hdf5(layer, path)
    nn.save_chainer_hdf5(layer, path)
    content = path.read_bytes()
    for damaged in (b"", b"PK", content[: len(content) // 2], np.random.bytes(1000)):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.h5 is no HDF5 file, or is damaged"):
            nn.load_chainer_hdf5(layer, path)


def test_data_in_other_files_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(24))
    layer = nn.Linear.init(fdbr.random.key(0), 3, 2)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("W", (2, 3), "f4", external=[(str(tmp_path / "secret"), 0, 24)])
        file["b"] = np.zeros(2)
    with pytest.raises(ValueError, match="W lies in another file"):
        nn.load_chainer_hdf5(layer, tmp_path / "a.h5")


def test_without_h5py_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"fdbr\.nn\.save_chainer_hdf5: .*fdbr\[hdf5\]"):
        nn.save_chainer_hdf5(net(), tmp_path / "a.h5")
    with pytest.raises(ImportError, match=r"fdbr\.nn\.load_chainer_hdf5: .*fdbr\[hdf5\]"):
        nn.load_chainer_hdf5(net(), tmp_path / "a.h5")
