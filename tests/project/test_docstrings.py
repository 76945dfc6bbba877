"""Docstrings say what a thing is or does, and are no riddles."""

import ast
from pathlib import Path

import fdbr

RIDDLES = {"How", "What", "Whatever", "When", "Where"}


def test_no_docstring_begins_with_a_question_word() -> None:
    """Say "The number of rows", not "How many rows there are"."""
    riddles = []
    for path in sorted(Path(fdbr.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if text.split(" ")[0] in RIDDLES:
                    riddles.append(f"{path.name}: {text.splitlines()[0]}")
    assert not riddles, "\n".join(riddles)
