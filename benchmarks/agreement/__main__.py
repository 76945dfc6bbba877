"""The command line: ``python -m benchmarks.agreement [--programs N]``."""

import argparse
import sys
import time
from typing import Any

from tqdm import tqdm

from benchmarks.agreement.comparing import LIMIT, Worst
from benchmarks.agreement.drawing import random_program
from benchmarks.agreement.libraries import LIBRARIES, Library, itself, load


def main() -> None:
    """Compare, and print the worst disagreement with each library."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agreement", description=__doc__)
    parser.add_argument("--programs", type=int, default=300, help="how many; 300 by default")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first; 0 by default")
    parser.add_argument("--length", type=int, default=8, help="operations of each; 8 by default")
    parser.add_argument("--show", action="store_true", help="print programs that disagree")
    arguments = parser.parse_args()
    if arguments.programs < 1 or arguments.length < 1 or arguments.first < 0:
        parser.error("--programs and --length must be positive, --first not negative")

    found = {name: load(name) for name in LIBRARIES}
    present = {name: library for name, library in found.items() if library is not None}
    others = [name for name in present if name != "fdbr"]
    worst = {name: Worst() for name in ("fdbr", *others)}
    seconds = dict.fromkeys(worst, 0.0)
    last = arguments.first + arguments.programs
    for seed in tqdm(range(arguments.first, last), desc="programs", leave=False, disable=None):
        away = compare(random_program(seed, arguments.length), present, worst, seconds)
        if arguments.show and max(away.values()) > LIMIT:
            print(away, random_program(seed, arguments.length), sep="\n", end="\n\n")

    versions = ", ".join(f"{name} {library.version}" for name, library in present.items())
    print(f"{arguments.programs} programs of {arguments.length} operations, {versions}")
    for name, noted in worst.items():
        print(f"\nfdbr and {name if name != 'fdbr' else 'itself, by other compositions'}", end="")
        print(f" ({seconds[name]:.0f} s)")
        for what, (distance, seed) in noted.by_name.items():
            print(f"  {what:9} differ by at most {distance:.1e} (program {seed})")
    if missing := [name for name in found if name not in present]:
        print(f"\nNot installed: {', '.join(missing)}. Install with: pip install -e '.[bench]'")
    if any(away > LIMIT for noted in worst.values() for away, _ in noted.by_name.values()):
        sys.exit(f"\nThey differ by more than {LIMIT}.")


def compare(
    program: Any, present: dict[str, Library], worst: dict[str, Worst], seconds: dict[str, float]
) -> dict[str, float]:
    """How far a program's results are apart in each library."""
    ours = present["fdbr"].derivatives(program)
    away = {}
    for name in worst:
        start = time.perf_counter()
        theirs = itself(program) if name == "fdbr" else present[name].derivatives(program)
        seconds[name] += time.perf_counter() - start
        away[name] = worst[name].note(program, ours, theirs)
    return away


if __name__ == "__main__":
    main()
