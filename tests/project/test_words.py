"""Names and prose use the field's terms, and not words that a reader would have to translate."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

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
# PyTorch's names of parameters, and Chainer's.
PUBLIC = {"negative_slope", "slope"}

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


def test_names_and_prose_use_the_terms_of_the_field():
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT.parent)
        for line, name in names(path):
            found += [
                f"{where}:{line}: the name {name}: {NAMES[part]}"
                for part in parts(name)
                if part in NAMES and name not in PUBLIC
            ]
        for line, text in texts(path):
            for pattern, instead in PROSE.items():
                match = re.search(pattern, text, re.IGNORECASE)
                if match:
                    found.append(f"{where}:{line}: {match.group()!r}: {instead}")
    assert not found, f"{len(found)} private words:\n" + "\n".join(found)
