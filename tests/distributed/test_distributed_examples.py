"""The examples for several processes: a short run of each on two ranks, and what it leaves."""

import ast
import difflib
import json
import runpy
from pathlib import Path

import pytest
from launching import mpiexec

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = {
    "mnist_distributed": ["--epochs", "2"],
    "tree_lstm_distributed": ["--epochs", "1", "--units", "4", "--examples", "21"],
    "dcgan_distributed": ["--epochs", "1", "--batch-size", "256"],
    "resnet50_distributed": (
        ["--epochs", "1", "--width", "4", "--side", "32", "--batch-size", "8", "--workers", "1"]
    ),
    "pipeline": ["--epochs", "2", "--width", "20"],
    "tensor_transformer": ["--epochs", "1", "--width", "16", "--layers", "1", "--batch-size", "80"],
}
LEFT = {"dcgan_distributed": "sampled.png", "pipeline": "schedule.png"}
DRIVER = f"""
import runpy
import sys

sys.path.insert(0, {str(EXAMPLES)!r})
for name, arguments in {SHORT!r}.items():
    path = {str(EXAMPLES)!r} + "/" + name + ".py"
    runpy.run_path(path)["main"]([*arguments, "--out", sys.argv[1] + "/" + name])
"""


def logged(folder):
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder with a folder for each example, and what was printed: one start for all."""
    folder = tmp_path_factory.mktemp("runs")
    done = mpiexec(2, DRIVER, folder, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.parametrize("name", SHORT)
def test_two_ranks_leave_one_log_and_curves(runs, name):
    out = runs[0] / name
    epochs = int(SHORT[name][1])
    assert [line["epoch"] for line in logged(out)] == list(range(1, epochs + 1))
    assert (out / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert (out / LEFT.get(name, "log.jsonl")).stat().st_size > 100


def test_one_rank_prints(runs):
    results = [line for line in runs[1].splitlines() if not line.startswith("epoch ")]
    assert [line.rsplit(" ", 1)[0] for line in results] == [
        "test accuracy", "test accuracy", "the generator's loss", "test accuracy",
        "test accuracy", "test loss",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["mnist", "tree_lstm"])
def test_two_ranks_train_as_one_process_does(runs, name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    arguments = SHORT[f"{name}_distributed"]
    runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]([*arguments, "--out", str(tmp_path)])
    ours, theirs = logged(runs[0] / f"{name}_distributed"), logged(tmp_path)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for metric in ("loss", "test/loss", "accuracy", "test/accuracy"):
            assert one[metric] == pytest.approx(other[metric], rel=1e-4)


def statements(path):
    """The statements of a program in their order, without docstrings; compound ones by headers."""
    found = []

    def walk(body):
        for node in body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            inner = getattr(node, "body", None)
            if isinstance(inner, list):
                node.body = [ast.Pass()]
                found.append(ast.unparse(node))
                walk(inner)
            else:
                found.append(ast.unparse(node))

    walk(ast.parse(path.read_text(encoding="utf-8")).body)
    return found


def test_the_distributed_mnist_differs_in_at_most_three_statements():
    ours, theirs = (statements(EXAMPLES / f"{name}.py") for name in ("mnist_distributed", "mnist"))
    matcher = difflib.SequenceMatcher(a=theirs, b=ours, autojunk=False)
    changed = sum(
        max(a_end - a, b_end - b)
        for kind, a, a_end, b, b_end in matcher.get_opcodes()
        if kind != "equal"
    )
    assert 1 <= changed <= 3


@pytest.mark.parametrize("name", SHORT)
def test_it_says_what_it_takes(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](["--help"])
    assert ended.value.code == 0
    assert "--" in capsys.readouterr().out
