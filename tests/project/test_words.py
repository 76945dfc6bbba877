"""Names and prose use the field's terms, and not words that a reader would have to translate."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import fdbr

ROOT = Path(fdbr.__file__).parent

# Parts of names, divided at underscores and capitals, and the term to use.
NAMES = {
    "turn": "iteration",
    "turns": "iterations",
    "slope": "derivative",
    "slopes": "derivatives",
    "pulled": "vjp",
    "pushed": "jvp",
    "meeting": "collective",
    "meetings": "collectives",
    "learnt": "discovered",
    "lessons": "traces",
    "whoever": "name the subject",
    "nobody": "name the subject",
    "somebody": "name the subject",
}
# Names of parameters in PyTorch, Chainer and Optax; and angles in turns.
EXEMPT = {"negative_slope", "slope", "slope_rtol", "turns", "of_half_turns", "_cosine_of_turns"}

# What a sentence must not say, and what it says instead.
PROSE = {
    r"\bturns? (of|by|after) (a|the|turn)\b": "iteration",
    r"\bslopes?\b(?!`)": "derivative",
    r"\bwhoever\b|\bnobody\b|\bsomebody\b|\banybody\b": "name the subject",
    r"\bmeetings?\b": "collective",
    r"\bgiven up\b|\bgives? up\b": "donated",
    r"\bstands? in for\b": "replaces, or is the fallback",
    r"\bwhat is around\b": "captured variables",
    r"\bhas (an )?effects?\b": "has side effects",
    r"\bgoes on\b|\bgo on\b": "continues",
    r"\bof which\b": "a sentence of its own",
    r"\bwhat no\b": "name the subject",
    r"\blearnt\b": "discovered",
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a module, with their lines."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield node.lineno, re.sub(r"\s+", " ", value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def names(path: Path) -> Iterator[tuple[int, str]]:
    """The names that a module gives, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def parts(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")


# Sentences that are still to be reworded, by package.  These numbers may only become smaller.
LEFT = {
    "backends": 14,
    "compiler": 7,
    "control_flow": 4,
    "core": 6,
    "debug": 9,
    "distributed": 45,
    "distributions": 3,
    "interop": 10,
    "ops": 16,
    "solvers": 4,
    "testing": 4,
    "train": 44,
    "transforms": 7,
}


@pytest.mark.slow
def test_names_and_prose_use_the_terms_of_the_field():
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT)
        here = found.setdefault(where.parts[0], [])
        for line, name in names(path):
            here += [
                f"{where}:{line}: the name {name}: {NAMES[part]}"
                for part in parts(name)
                if part in NAMES and name not in EXEMPT
            ]
        for line, text in texts(path):
            for pattern, instead in PROSE.items():
                match = re.search(pattern, text, re.IGNORECASE)
                if match:
                    here.append(f"{where}:{line}: {match.group()!r}: {instead}")
    assert not [line for lines in found.values() for line in lines if ": the name " in line]
    counts = {package: len(lines) for package, lines in found.items() if lines}
    more = {package for package, count in counts.items() if count > LEFT.get(package, 0)}
    assert not more, "\n".join(line for package in sorted(more) for line in found[package])
    assert counts == LEFT, "fewer are left: write that down here"
