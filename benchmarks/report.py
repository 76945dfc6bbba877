"""Check that the libraries agree, time them, and print the table."""

import importlib
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import peers, timing

REFERENCE = "torch"  # the library that ratios are taken to
QUIET = 0.5  # the load, before the run, up to which a machine counts as idle
CHECKED_CALLS = 3  # several, so that a training step's update is compared too


def run(workloads: Iterable[str], rounds: int, threads: int) -> None:
    """Run the workloads with every library that is installed, and print what came out."""
    found = {name: peers.load(name, threads) for name in peers.PEERS}
    present = [name for name, version in found.items() if version is not None]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rows: list[tuple[str, ...]] = [
        ("workload", "library", "median µs", "min µs", f"/ {REFERENCE} median", "/ min")
    ]
    for name in tqdm(list(workloads), desc="benchmarks", leave=False, disable=None):
        rows += _rows(importlib.import_module(f"benchmarks.{name}"), present, rounds)

    versions = ", ".join(f"{name} {found[name]}" for name in present)
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {versions}")
    print(f"{threads} threads, {rounds} interleaved rounds")
    if load > QUIET:
        print(f"The machine was busy (load {load:.1f}): these times are not to be trusted.")
    print()
    _print_table(rows)
    if missing := [name for name in found if name not in present]:
        print(f"\nNot installed: {', '.join(missing)}. Install with: pip install -e '.[bench]'")


def _rows(workload: ModuleType, present: list[str], rounds: int) -> list[tuple[str, ...]]:
    def prepared() -> dict[str, Callable[[], Any]]:
        return {name: getattr(workload, name)() for name in present if hasattr(workload, name)}

    _check_agreement(workload, prepared())
    seconds = timing.interleaved(prepared(), rounds)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    minima = {name: min(times) for name, times in seconds.items()}
    return [
        (
            workload.TITLE,
            name,
            f"{1e6 * medians[name]:.1f}",
            f"{1e6 * minima[name]:.1f}",
            _ratio(medians, name),
            _ratio(minima, name),
        )
        for name in seconds
    ]


def _ratio(times: dict[str, float], name: str) -> str:
    return f"{times[name] / times[REFERENCE]:.2f}" if REFERENCE in times else "-"


def _check_agreement(workload: ModuleType, calls: dict[str, Callable[[], Any]]) -> None:
    """Stop if a library does not compute what fdbr computes: its time would mean nothing."""
    results = {name: _results(name, call) for name, call in calls.items()}
    expected = results["fdbr"]
    for name, got in results.items():
        if got[0].dtype != expected[0].dtype:
            sys.exit(f"{workload.TITLE}: {name} has {got[0].dtype}, fdbr {expected[0].dtype}")
        for number, (theirs, ours) in enumerate(zip(got, expected, strict=True), 1):
            if not np.allclose(theirs, ours, rtol=workload.RTOL, atol=0):
                sys.exit(f"{workload.TITLE}, call {number}: {name} gives {theirs}, fdbr {ours}")


def _results(name: str, call: Callable[[], Any]) -> list[np.ndarray]:
    return [np.array(peers.PEERS[name].to_numpy(call())) for _ in range(CHECKED_CALLS)]


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(_cells(row, widths)) for row in rows]
    print("\n".join([lines[0], "-" * len(lines[0]), *lines[1:]]))


def _cells(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """Words to the left, numbers to the right."""
    words = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
    return words + [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
