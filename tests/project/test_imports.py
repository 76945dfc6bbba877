"""Imports run downward: no module needs, by whatever way, one that needs it."""

import ast
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fdbr
from fdbr.backends.cpu.runtime import background

ROOT = Path(fdbr.__file__).parent

# `asarray` stacks what it is given, and `stack` takes what `asarray` takes.
MUTUAL = {("fdbr.ops.shape.creation", "fdbr.ops.shape.manipulation")}
# Parts that `import fdbr` does not load, but their first use does.
LATER = ("debug", "distributed", "distributions", "nn", "testing", "train")


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("fdbr", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> tuple[set[str], set[str]]:
    """The modules that one imports when it is imported, and those that it imports later."""
    first: set[str] = set()
    later: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        (later if getattr(node, "col_offset", 0) else first).update(known.keys() & names)
    return first, later


def test_no_modules_import_each_other():
    known = modules()
    graph = {name: imports(path, known)[0] for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' -> '.join(error.args[1])}") from None


def test_no_import_is_put_off():
    known = modules()
    found = {(name, to) for name, path in known.items() for to in imports(path, known)[1]}
    assert found == MUTUAL | {("fdbr", f"fdbr.{part}") for part in LATER}


def test_parts_that_stand_above_the_engine_are_loaded_by_their_first_use():
    program = f"""
import sys, fdbr
assert not {{"scipy", *map("fdbr.{{}}".format, {LATER})}} & sys.modules.keys()
for part in {LATER}:
    assert getattr(fdbr, part) is sys.modules["fdbr." + part]
    assert part in fdbr.__all__ and part in dir(fdbr)
print(hasattr(fdbr, "sum"))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert found.stdout.strip() == b"False", found.stderr.decode()


def test_the_process_that_compiles_kernels_loads_no_numpy():
    """NumPy takes as long to load as a dozen kernels to compile."""
    packages = {name: list(sys.modules[name].__path__) for name in background._PACKAGES}
    program = background._PROGRAM.format(packages=packages, niceness=0)
    program += "print([name for name in ('numpy', 'logging', 'attrs') if name in sys.modules])"
    given = {"capture_output": True, "input": b"", "check": True, "timeout": 60}
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    command = [sys.executable, "-P", "-S", "-c", program.replace("serve(0)", "")]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, **given)
    assert found.stdout.strip() == b"[]"
