"""What editors and type checkers see of fdbr."""

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fdbr import ops


def test_the_source_of_an_operation_is_its_value_and_its_rules():
    assert "def add(xp" in inspect.getsource(ops.add)
    assert inspect.getsource(ops.add).lstrip().startswith("@elementwise")
    assert list(inspect.signature(ops.add).parameters) == ["x", "y"]


PROGRAM = '''
import fdbr
from fdbr.ops import declare

def loss(w: float, *, scale: float = 1.0) -> float:
    """."""
    return w * scale

@declare.elementwise(x=lambda x: 3 * x**2)
def cube(xp: object, x: float) -> float:
    """."""
    return x**3

@fdbr.jit
def step(w: float) -> str:
    """."""
    return "done"

reveal_type(cube)
reveal_type(fdbr.grad(loss))
reveal_type(fdbr.value_and_grad(loss))
reveal_type(fdbr.vmap(loss))
reveal_type(fdbr.checkpoint(loss))
reveal_type(fdbr.jit(loss)(1.0))
reveal_type(step(1.0))
fdbr.jit(loss)("one")
fdbr.grad(loss)(1.0, size=2.0)
cube(1.0, 2.0)
'''


TYPING = Path(__file__).parents[1] / "typing"
MISTAKES, CORRECT = TYPING / "deliberate_mistakes.py", TYPING / "correct_programs.py"
MARKED = {
    number: line.partition("# error: ")[2]
    for number, line in enumerate(MISTAKES.read_text("utf-8").splitlines(), 1)
    if "# error: " in line
}
NOT_YET = {
    # Mistakes that are not found because parameters are `Any`.
    "an axis is an integer",
    "no such reduction",
    "a seed is no key",
    "the function comes first",
    "the state comes before the parameters",
    "batches are iterated over",
}
NOT_EXPORTED = {"astype"}
"""A name of `fdbr.ops` whose import there mypy --strict takes for private."""


@pytest.fixture(scope="module")
def mypys_lines(tmp_path_factory):
    """What mypy --strict prints, by file; it reads the sources of fdbr once for all tests."""
    api = pytest.importorskip("mypy.api", reason="needs mypy")
    folder = tmp_path_factory.mktemp("mypy")
    path = folder / "program.py"
    path.write_text(PROGRAM)
    options = ["--strict", "--no-error-summary", "--follow-imports=silent", "--cache-dir", folder]
    out, err, _ = api.run([str(given) for given in (*options, path, MISTAKES, CORRECT)])
    assert not err
    lines = {"program": [], MISTAKES.stem: [], CORRECT.stem: []}
    for line in out.splitlines():
        lines[Path(line.partition(":")[0]).stem].append(line)
    return lines


def without_exports(lines):
    """The errors that are no fault of the program."""
    return [x for x in lines if " error: " in x and "does not explicitly export" not in x]


@pytest.mark.slow
def test_transformations_and_operations_keep_the_signatures_of_what_they_are_given(mypys_lines):
    lines = mypys_lines["program"]
    told = [
        line.split('"')[1].replace("builtins.", "") for line in lines if "Revealed type" in line
    ]
    takes = "(w: float, *, scale: float =) -> "
    assert told[0].endswith("Operation[[x: float], float]")
    assert told[1:5] == [
        f"def {takes}Any",
        f"def {takes}tuple[Any, Any]",
        f"def {takes}float",
        f"def {takes}float",
    ]
    assert told[5:] == ["float", "str"]
    assert len([line for line in lines if "error:" in line]) == 3


def test_there_are_twenty_deliberate_mistakes():
    assert len(set(MARKED.values())) == len(MARKED) == 20
    assert set(MARKED.values()) >= NOT_YET


def test_mypy_finds_deliberate_mistakes_and_nothing_else(mypys_lines):
    errors = without_exports(mypys_lines[MISTAKES.stem])
    assert_marked(int(error.split(":")[1]) for error in errors)
    lines = mypys_lines[CORRECT.stem]
    assert not without_exports(lines)
    assert set(re.findall('explicitly export attribute "(\\w+)"', "\n".join(lines))) == NOT_EXPORTED


def test_correct_programs_run():
    spec = importlib.util.spec_from_file_location(CORRECT.stem, CORRECT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main()


def test_pyright_finds_deliberate_mistakes_and_nothing_else():
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("needs pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run([*command, MISTAKES, CORRECT], capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright did not start: {done.stderr or done.stdout}")
    found = [x for x in json.loads(done.stdout)["generalDiagnostics"] if x["severity"] == "error"]
    assert [x for x in found if Path(x["file"]).name == CORRECT.name] == []
    assert_marked(x["range"]["start"]["line"] + 1 for x in found)


def assert_marked(lines):
    """Check that lines of errors are the marked ones; those that are not found yet are listed."""
    found = {MARKED.get(number, f"line {number}, which is not marked") for number in lines}
    assert found == set(MARKED.values()) - NOT_YET
