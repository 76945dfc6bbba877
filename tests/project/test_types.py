"""What editors and type checkers see of fdbr."""

import inspect
import textwrap

import pytest

from fdbr import ops


def test_the_source_of_an_operation_is_its_value_and_its_rules():
    assert "def add(xp" in inspect.getsource(ops.add)
    assert inspect.getsource(ops.add).lstrip().startswith("@elementwise")
    assert list(inspect.signature(ops.add).parameters) == ["x", "y"]


PROGRAM = '''
import fdbr
from fdbr.ops import kinds

def loss(w: float, *, scale: float = 1.0) -> float:
    """."""
    return w * scale

@kinds.elementwise(x=lambda x: 3 * x**2)
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


def test_transformations_and_operations_keep_the_signatures_of_what_they_are_given(tmp_path):
    api = pytest.importorskip("mypy.api", reason="needs mypy")
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    options = ["--no-error-summary", "--follow-imports=silent", "--cache-dir", str(tmp_path)]
    lines = api.run([*options, str(path)])[0].splitlines()
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
