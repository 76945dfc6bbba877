"""The classifier of handwritten digits, from its command line."""

import gzip
import json
import os
import re
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "mnist.py"


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def accuracy(output):
    return float(re.fullmatch(r"test accuracy (\d\.\d+)", output.splitlines()[-1])[1])


def write_idx(path, array):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_mnist(folder):
    """Images of which a bright row tells the label."""
    folder.mkdir()
    for part, count in (("train", 300), ("t10k", 50)):
        labels = np.arange(count, dtype="uint8") % 10
        images = np.zeros((count, 12, 12), "uint8")
        images[np.arange(count), labels] = 200
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)
    return folder


def test_the_digits_are_learnt_and_the_run_is_recorded(tmp_path):
    out = tmp_path / "result"
    done = run("--out", out)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) >= 0.96
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 51))
    assert done.stdout.count("epoch ") == 50
    assert lines[-1]["test/accuracy"] == pytest.approx(accuracy(done.stdout), abs=1e-4)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert (out / "curves.png").read_bytes()[:4] == b"\x89PNG"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # as where it is run as a script
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(
    "optimizer",
    ["adam", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sgd", "momentum"))],
)
def test_idx_files_are_learnt_with_every_optimizer(script, tmp_path, capsys, optimizer):
    data = write_mnist(tmp_path / "data")
    script["main"](
        ["--data", str(data), "--out", str(tmp_path), "--optimizer", optimizer, "--epochs", "30",
         "--batch-size", "20"]
    )  # fmt: skip
    assert accuracy(capsys.readouterr().out) == 1.0


@pytest.mark.slow
def test_a_run_with_the_same_seed_gives_the_same_log(script, tmp_path):
    logs = []
    for seed in (1, 1, 2):
        script["main"](["--out", str(tmp_path), "--epochs", "2", "--seed", str(seed)])
        lines = (tmp_path / "log.jsonl").read_text().splitlines()
        logs.append([{**json.loads(line), "seconds": 0} for line in lines])
    assert logs[0] == logs[1] != logs[2]
    assert len(logs[0]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-size", "0"], "size must be at least 1, got 0"),
        (["--epochs", "-1"], "epochs must be at least 0"),
        (["--learning-rate", "-1"], "learning rate must be at least 0"),
        (["--data", "no-such-folder"], "no-such-folder does not exist"),
    ],
)
def test_bad_arguments_end_in_one_line(script, tmp_path, capsys, arguments, message):
    with pytest.raises(SystemExit):
        script["main"]([*arguments, "--out", str(tmp_path)])
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_run_goes_on_and_ends_as_if_it_had_not_stopped(tmp_path):
    data = write_mnist(tmp_path / "data")
    rate = "--data", data, "--optimizer", "sgd", "--epochs"
    whole = run(*rate, 4, "--out", tmp_path / "whole")
    stopped = run(*rate, 4, "--out", tmp_path / "parts")
    assert stopped.returncode == 0, stopped.stderr
    (last := sorted((tmp_path / "parts/snapshots").iterdir())[-1]).unlink()
    resumed = run(*rate, 4, "--out", tmp_path / "parts", "--resume")
    assert last.exists()
    assert accuracy(resumed.stdout) == accuracy(whole.stdout)
    logs = [(tmp_path / name / "log.jsonl").read_text() for name in ("whole", "parts")]
    ours, theirs = ([json.loads(line) for line in log.splitlines()] for log in logs)
    assert [{**line, "seconds": 0} for line in ours] == [{**line, "seconds": 0} for line in theirs]
