"""The command line: ``python -m benchmarks.reference [FAMILY ...]``."""

import argparse
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import reference

TESTS = Path(__file__).parents[2] / "tests"


def families() -> list[str]:
    """The names of the modules that record."""
    found = (module.name for module in pkgutil.iter_modules(reference.__path__))
    return sorted(name for name in found if not name.startswith("_"))


def record(family: str) -> Path:
    """Write what PyTorch, or Optax, gives for the cases of a family."""
    module = importlib.import_module(f"benchmarks.reference.{family}")
    arrays: dict[str, Any] = {}
    for case, parts in module.cases():
        for name, part in parts.items():
            key = f"{case}/{name}"
            if key in arrays:
                raise ValueError(f"two arrays of {family} are named {key}")
            arrays[key] = np.asarray(part.detach() if hasattr(part, "detach") else part)
    folder = TESTS / getattr(module, "ROOM", "nn") / "reference"
    folder.mkdir(exist_ok=True)
    path = folder / f"{family}.npz"
    np.savez_compressed(path, allow_pickle=False, **arrays)
    return path


def main() -> None:
    """Record the families that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="all by default")
    for family in parser.parse_args().families or families():
        path = record(family)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
