"""Files of CIFAR, SVHN and PTB, and their damages."""

import pickle
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from fdbr import train

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 4, 3072), "uint8")
LABELS = RNG.integers(0, 10, (6, 4))
NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def binary(folder):
    for name, pixels, labels in zip(NAMES, PIXELS, LABELS, strict=True):
        rows = np.concatenate([labels[:, None].astype("uint8"), pixels], 1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    return folder


def pickled(folder, protocol=2):
    for name, pixels, labels in zip(NAMES, PIXELS, LABELS, strict=True):
        content = {b"data": pixels, b"labels": labels.tolist(), b"batch_label": b"a batch"}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    return folder


def below(folder, name):
    (folder / name).mkdir()
    return folder / name


def archived(tmp_path):
    pickled(below(tmp_path, "cifar-10-batches-py"))
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    for path in (tmp_path / "cifar-10-batches-py").iterdir():
        path.unlink()
    return tmp_path


WAYS = {
    "binary": binary,
    "in a folder": lambda p: binary(below(p, "cifar-10-batches-bin")).parent,
    "pickled by Python 2": lambda p: pickled(p, 0),
    "pickled": pickled,
    "pickled later": lambda p: pickled(p, 4),
    "archived": archived,
}


@pytest.mark.parametrize("way", WAYS)
def test_cifar_is_the_same_in_all_its_versions(way, tmp_path):
    training, test = train.cifar10(WAYS[way](tmp_path))
    assert training["image"].shape == (20, 3, 32, 32)
    assert training["image"].dtype == np.float32
    expected = PIXELS.reshape(24, 3, 32, 32).astype("float32") / 255
    np.testing.assert_array_equal(training["image"], expected[:20])
    np.testing.assert_array_equal(test["image"], expected[20:])
    np.testing.assert_array_equal(training["label"], LABELS[:5].ravel())
    assert test["label"].dtype == np.int64


@pytest.mark.parametrize("kind", ["binary", "pickled"])
def test_cifar_100_has_coarse_labels_too(kind, tmp_path):
    for name, pixels in zip(("train", "test"), PIXELS, strict=False):
        coarse, fine = [1, 2, 3, 19], [10, 20, 30, 99]
        if kind == "binary":
            rows = np.concatenate([np.array([coarse, fine], "uint8").T, pixels], 1)
            (tmp_path / f"{name}.bin").write_bytes(rows.tobytes())
        else:
            content = {"data": pixels, "coarse_labels": coarse, "fine_labels": fine}
            (tmp_path / name).write_bytes(pickle.dumps(content, 2))
    training, _ = train.cifar100(tmp_path)
    assert training["label"].tolist() == fine
    assert training["coarse_label"].tolist() == coarse


class Evil:
    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no file of this data set, or is damaged"),
        (b"\x80\x02}q\x00(X", "damaged"),
        (pickle.dumps(Evil()), r"it calls (builtins|__builtin__)\.exec"),
        (pickle.dumps({"data": Evil()}, 2), "exec"),
        (pickle.dumps([1, 2]), "holds a list"),
        (pickle.dumps({"labels": [1]}), "data"),
        (pickle.dumps({"data": np.array([None]), "labels": [1]}, 2), "dtype"),
        (pickle.dumps({"data": np.zeros((2, 3)), "labels": [1, 2]}, 2), "3 x 32 x 32"),
        (pickle.dumps({"data": PIXELS[0], "labels": [1, 2, 3, 10]}, 2), "not below 10"),
        (pickle.dumps({"data": PIXELS[0], "labels": [1]}, 2), "with their labels"),
    ],
)
def test_a_pickle_of_something_else_is_refused_and_not_run(content, message, tmp_path):
    pickled(tmp_path)
    (tmp_path / "data_batch_3").write_bytes(content)
    with pytest.raises(ValueError, match=rf"data_batch_3.*{message}"):
        train.cifar10(tmp_path)


def test_truncated_and_missing_files_of_cifar_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither data_batch_1 .* does not download"):
        train.cifar10(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        train.cifar10(tmp_path / "nowhere")
    binary(tmp_path)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_2\.bin has 12291 bytes, .* of 3073"):
        train.cifar10(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_2\.bin is missing"):
        train.cifar10(tmp_path)
    for other in tmp_path.iterdir():
        other.unlink()
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"\x1f\x8b no archive")
    with pytest.raises(ValueError, match="no whole tar archive"):
        train.cifar10(tmp_path)


# --- SVHN ---------------------------------------------------------------------------


def write_svhn(folder, **changes):
    images = RNG.integers(0, 256, (32, 32, 3, 5), "uint8")
    for part in ("train", "test"):
        content = {"X": images, "y": np.array([[1], [10], [3], [9], [2]], "uint8"), **changes}
        savemat(folder / f"{part}_32x32.mat", content)
    return images


def test_svhn_has_images_first_and_the_digits(tmp_path):
    images = write_svhn(tmp_path)
    training, test = train.svhn(tmp_path)
    assert training["image"].shape == (5, 3, 32, 32)
    expected = images[..., 2].transpose(2, 0, 1).astype("float32") / 255
    np.testing.assert_array_equal(training["image"][2], expected)
    assert test["label"].tolist() == [1, 0, 3, 9, 2]


def test_damages_of_svhn_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none of train_32x32"):
        train.svhn(tmp_path)
    write_svhn(tmp_path, y=np.array([[1], [2]]))
    with pytest.raises(ValueError, match="should hold y, 5 labels"):
        train.svhn(tmp_path)
    write_svhn(tmp_path, X=np.zeros((3, 4)))
    with pytest.raises(ValueError, match="should hold X"):
        train.svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    for content in (path.read_bytes()[:150], b"nonsense"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"train_32x32\.mat is no MATLAB file"):
            train.svhn(tmp_path)


# --- texts --------------------------------------------------------------------------


def test_ptb_shares_one_vocabulary(tmp_path):
    for part, text in (("train", "a b\nc a\n"), ("valid", "b d\n"), ("test", "e\n")):
        (tmp_path / f"ptb.{part}.txt").write_text(text)
    training, validation, test, vocabulary = train.ptb_words(tmp_path)
    assert training.tolist() == [0, 1, 2, 3, 0, 2]
    assert validation.tolist() == [1, 4, 2]
    assert test.tolist() == [5, 2]
    assert dict(vocabulary) == {"a": 0, "b": 1, "<eos>": 2, "c": 3, "d": 4, "e": 5}
    assert training.dtype == np.int32
    (tmp_path / "ptb.valid.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"ptb\.valid\.txt"):
        train.ptb_words(tmp_path)


def test_words_that_are_not_known_may_be_one(tmp_path):
    (tmp_path / "text").write_text("a x y")
    words, vocabulary = train.read_words(tmp_path / "text", {"a": 0, "?": 1}, None, unknown="?")
    assert words.tolist() == [0, 1, 1]
    assert len(vocabulary) == 2
    with pytest.raises(ValueError, match="not in the vocabulary"):
        train.read_words(tmp_path / "text", unknown="?")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"\n\n"])
def test_a_file_without_words_is_refused(content, tmp_path):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(ValueError, match="text"):
        train.read_words(tmp_path / "text")


def test_new_words_get_numbers_that_no_known_word_has(tmp_path):
    (tmp_path / "text").write_text("b a c\n")
    found, vocabulary = train.read_words(tmp_path / "text", {"a": 1, "z": 4}, None)
    assert found.tolist() == [5, 1, 6]
    assert dict(vocabulary) == {"a": 1, "z": 4, "b": 5, "c": 6}


def test_lines_end_with_the_ends_of_lines_alone(tmp_path):
    (tmp_path / "text").write_bytes("a\x0cb\u2028c\x85d\r\n\ne".encode())
    words, vocabulary = train.read_words(tmp_path / "text")
    ends = np.flatnonzero(words == vocabulary["<eos>"])
    assert ends.tolist() == [4, 5, 7]
    (tmp_path / "text").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match=r"line 1 of .*text is no text in utf-8"):
        train.text_lines(tmp_path / "text")[1]


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_read_one_by_one(end, tmp_path):
    (tmp_path / "text").write_text(f"ä\r\n\nsecond{end}", encoding="utf-8", newline="")
    lines = train.text_lines(tmp_path / "text")
    assert list(lines) == ["ä", "", "second"]
    assert lines[-1] == "second"
    (tmp_path / "text").write_text("x")
    with pytest.raises(ValueError, match="shorter than it was"):
        lines[2]
    (tmp_path / "text").write_text("")
    with pytest.raises(ValueError, match="is empty"):
        train.text_lines(tmp_path / "text")
