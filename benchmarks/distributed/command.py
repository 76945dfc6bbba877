"""The command line of ``python -m benchmarks distributed``, which starts the ranks itself."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.distributed import gpus, reductions, steps, timeline

__all__ = ["PARTS", "main"]

PARTS: dict[str, Callable[[list[str]], None]] = {
    "all_reduce": reductions.main,
    "steps": steps.main,
    "timeline": timeline.main,
}
"""What runs on each rank, by its name on the command line; given the arguments behind it."""


def main(arguments: list[str]) -> None:
    """Start the ranks, each of which measures the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks distributed", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(PARTS))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds, for a test")
    parser.add_argument(
        "--backend",
        choices=["mpi", "nccl"],
        default="mpi",
        help="nccl: all GPUs of this machine, beside NCCL alone; skipped where there are none",
    )
    parser.add_argument("--timeline", metavar="FILE", help="draw overlapped steps into this file")
    options = parser.parse_args(arguments)
    if options.backend == "nccl":
        gpus.main(["--quick"] * options.quick)
        return
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part {part!r}; choose of {', '.join(PARTS)}")
    threads = str(options.threads)
    names = ("FDBR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, threads)}
    every = ["timeline"] if options.timeline else [part for part in PARTS if part != "timeline"]
    for part in options.parts or every:
        command = [_launcher(), "-n", str(options.ranks), sys.executable]
        command += ["-m", "benchmarks.distributed", part]
        command += [options.timeline or "result/timeline.png"] * (part == "timeline")
        command += ["--quick"] * options.quick
        subprocess.run(command, check=True, env=environment)


def _launcher() -> str:
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise SystemExit("there is no mpiexec; pip install '.[mpi]'")
    return found
