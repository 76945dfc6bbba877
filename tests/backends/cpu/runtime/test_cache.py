"""A file in the cache of kernels is the kernel of its name, or nothing."""

import os
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from fdbr.backends.cpu.runtime import machine

NAME, CODE = "a" * 64, ("kernel", b"machine code\nof some kernel")


def _other(path):
    machine._write(path.with_name(f"{'b' * 64}.kernel"), "kernel", b"of another one")
    os.replace(path.with_name(f"{'b' * 64}.kernel"), path)


def _swapped_name(path):
    machine._write(path, "kernel", CODE[1])
    os.replace(path, path.with_name("other.kernel"))
    os.symlink("other.kernel", path)
    (path.parent / "other.kernel").write_bytes(b"nonsense")


def _unreadable(path):
    machine._write(path, *CODE)
    path.chmod(0)


def _sparse(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def _directory(path):
    path.mkdir()
    (path / "full").write_bytes(b"")


HOSTILE = {
    "the content of another kernel": _other,
    "a link to nonsense": _swapped_name,
    "a directory": _directory,
    "an empty file": lambda path: path.write_bytes(b""),
    "nonsense": lambda path: path.write_bytes(os.urandom(1000)),
    "an older format": lambda path: path.write_bytes(b"fdbr kernel 3\n" + bytes(100)),
    "a file without end": _sparse,
    "an unreadable file": _unreadable,
    "a pipe": lambda path: os.mkfifo(path),
    "a link to a pipe": lambda path: (os.mkfifo(path.with_name("p")), os.symlink("p", path)),
    "a device": lambda path: os.symlink("/dev/zero", path),
    "a link to nothing": lambda path: os.symlink("nothing", path),
    "a link to itself": lambda path: os.symlink(path.name, path),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FDBR_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(os.name != "posix", reason="pipes and links are POSIX's")
@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_kernel_of_its_name_is_compiled_again_and_replaced(kind, folder):
    path = folder / f"{NAME}.kernel"
    HOSTILE[kind](path)
    try:
        if not (kind == "an unreadable file" and os.geteuid() == 0):
            assert machine.find(NAME) is None
        assert machine.code_of(NAME, lambda: CODE) == CODE
        if kind != "a directory":
            assert machine.find(NAME) == CODE
            assert not path.is_symlink()
    finally:
        left = [file.name for file in folder.iterdir()]
        assert not [name for name in left if name.startswith("tmp")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_with_any_other_byte_is_no_kernel(folder, data):
    path = folder / f"{NAME}.kernel"
    machine._write(path, *CODE)
    whole = path.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(start, len(whole)))
    changed = whole[:start] + data.draw(st.binary(max_size=stop - start + 3)) + whole[stop:]
    path.write_bytes(changed)
    assert machine.find(NAME) == (CODE if changed == whole else None)


_PROGRAM = """
import numpy as np, fdbr
x = np.linspace(0.0, 1.0, 50_000)
for f in (np.tanh, np.exp, lambda x: np.sin(x) * x, lambda x: x / (1 + x), lambda x: x.sum()):
    got = fdbr.jit(lambda x: f(x) * 2)(x)
    assert np.allclose(got, f(x) * 2)
print("right")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="pipes are POSIX's")
def test_programs_are_right_with_a_cache_that_was_shuffled(folder):
    def run():
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120
        )
        assert done.stdout == "right\n", done.stderr

    run()
    files = sorted(folder.glob("*.kernel"))
    assert len(files) > 3
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    run()
    for file in files[::2]:
        Path(file).unlink()
        os.mkfifo(file)
    run()
