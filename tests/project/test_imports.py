"""Each package imports only those on floors below it, and no module imports one that needs it.

``python tests/project/test_imports.py`` prints which package imports which.
"""

import ast
import functools
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import fdbr
from fdbr.backends.cpu.runtime import background

ROOT = Path(fdbr.__file__).parent

FLOORS = (
    *("pytrees", "errors", "core", "ops", "tree", "random", "transforms", "interop", "compiler"),
    *("control_flow", "solvers", "distributions", "backends", "testing", "debug", "nn", "train"),
    *("distributed", "vision"),
)
"""The packages of fdbr, from the lowest floor to the highest."""

# `asarray` stacks what it is given, and `stack` takes what `asarray` takes.
MUTUAL = {("fdbr.ops.shape.creation", "fdbr.ops.shape.manipulation")}
# Parts that `import fdbr` does not load, but their first use does.
LATER = ("debug", "distributed", "distributions", "nn", "testing", "train", "vision")


@functools.cache
def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("fdbr", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def imports(path: Path) -> tuple[set[str], set[str]]:
    """The modules that one imports when it is imported, and those that it imports later."""
    known = modules()
    first: set[str] = set()
    later: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unrun = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test).endswith("TYPE_CHECKING")
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in unrun:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        (later if getattr(node, "col_offset", 0) else first).update(known.keys() & names)
    return first, later


def floor_of(module: str) -> str:
    return module.split(".")[1]


def upward(known: dict[str, Path]) -> set[tuple[str, str]]:
    """The imports of a module from a floor above its own."""
    pairs = {(name, to) for name in known for to in set.union(*imports(known[name]))}
    return {
        (name, to)
        for name, to in pairs
        if "fdbr" not in (name, to) and FLOORS.index(floor_of(to)) > FLOORS.index(floor_of(name))
    }


def test_the_top_of_the_package_has_no_modules():
    assert {path.name for path in ROOT.iterdir() if path.is_file()} == {"__init__.py", "py.typed"}
    packages = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(FLOORS)


def test_each_package_imports_only_those_on_floors_below_it():
    found = upward(modules())
    assert found == set()


def test_no_module_below_the_operations_looks_a_primitive_up_by_its_name():
    below = FLOORS[: FLOORS.index("ops")]
    for name, path in modules().items():
        if name != "fdbr" and floor_of(name) in below:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                    by_text = isinstance(node.slice, ast.Constant)
                    assert not (node.value.id == "registry" and by_text), f"{name}:{node.lineno}"


def test_no_modules_import_each_other():
    graph = {name: imports(path)[0] for name, path in modules().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' -> '.join(error.args[1])}") from None


def test_no_import_is_put_off():
    found = {(name, to) for name, path in modules().items() for to in imports(path)[1]}
    assert found == MUTUAL


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


# --- assignments to what belongs to others --------------------------------------------

# Each changes an object of another module, for which there is no other hook.
ASSIGNED = {
    # A solver, which stands above the operations among which users find it.
    ("fdbr.solvers", "linalg.cg"),
    # The operators of traced values are operations, which stand above `Tracer`.
    ("fdbr.core.tracer_methods", "setattr(Tracer)"),
    ("fdbr.interop.assignment", "Tracer.__init_subclass__"),
    # SciPy's distributions and sparse matrices have no protocol that they ask.
    ("fdbr.interop.scipy_distributions", "setattr(stats)"),
    ("fdbr.ops.sparse.arrays", "setattr(owner)"),
    # Python's own hooks for errors that end a program.
    ("fdbr.distributed.failures", "sys.excepthook"),
    ("fdbr.distributed.failures", "threading.excepthook"),
    # A decorator completes the class, or the function, that it is written above.
    ("fdbr.errors.public", "setattr(cls)"),
    ("fdbr.pytrees.classes", "setattr(cls)"),
    ("fdbr.pytrees.classes", "setattr(made)"),
}


def root_of(node: ast.AST) -> str:
    """The name from which an attribute is reached: ``a`` of ``a.b.c`` and of ``getattr(a, b)``."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            node = node.value
        elif isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        else:
            return ""
    return node.id


def foreign_assignments(tree: ast.Module) -> set[str]:
    """Assignments to attributes of what a module imports; and `setattr`, but of its own classes."""
    nodes = list(ast.walk(tree))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    own = {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | {"self", "copy"}
    found = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            if root_of(node) in imported:
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = root_of(node.args[0]) if node.func.id in ("setattr", "delattr") else "self"
            if name not in own:
                found.add(f"{node.func.id}({name})")
    return found


def test_no_module_assigns_to_what_belongs_to_another():
    found = {
        (name, target)
        for name, path in modules().items()
        for target in foreign_assignments(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == ASSIGNED


if __name__ == "__main__":
    known = modules()
    for floor in FLOORS:
        needed = {
            floor_of(to)
            for name in known
            if name != "fdbr" and floor_of(name) == floor
            for to in set.union(*imports(known[name])) - {"fdbr"}
        }
        print(f"{floor}: {' '.join(sorted(needed - {floor}, key=FLOORS.index))}")
    for name, to in sorted(upward(known)):
        print(f"upward: {name} imports {to}")
