"""Sums over GPUs, beside NCCL alone: what fdbr adds to NCCL's own all-reduce of the same bytes."""

import argparse
import time
from collections.abc import Callable
from typing import Any

from fdbr import distributed
from fdbr.core import devices
from fdbr.distributed.transports.choosing import with_devices

__all__ = ["main", "missing"]

SIZES = (1_000, 100_000, 10_000_000, 100_000_000)  # bytes


def missing() -> str:
    """Why there is nothing to measure on this machine; empty if there is something."""
    try:
        cupy = devices.accelerator()
    except ImportError:
        return "CuPy is not installed"
    if not devices.devices_of(cupy):
        return "there is no GPU"
    return "" if cupy.cuda.nccl.available else "CuPy finds no NCCL"


def main(arguments: list[str]) -> None:
    """Measure all GPUs of this machine, each by a thread of this process."""
    if why := missing():
        print(f"skipped: {why}")
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks distributed --backend nccl")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args(arguments).quick
    cupy = devices.accelerator()
    size = devices.devices_of(cupy)
    key = cupy.cuda.nccl.get_unique_id()
    print(f"{size} GPU{'s' * (size > 1)}; milliseconds, best of many, interleaved")
    print("| bytes | NCCL alone | all_reduce | ratio | wire='float16' |\n|---|---|---|---|---|")

    def rank(host: distributed.Communicator) -> list[dict[str, float]]:
        with cupy.cuda.Device(host.rank):
            transport = with_devices(host.transport, 60.0, nccl=True)
            comm = distributed.Communicator(transport, 60.0)
            alone = cupy.cuda.nccl.NcclCommunicator(size, key, host.rank)
            sizes = SIZES[:2] if quick else SIZES
            return [_measured(cupy, comm, alone, n, 3 if quick else 30) for n in sizes]

    ranks = distributed.run_in_threads(rank, size)
    for n, best in zip(SIZES, ranks[0], strict=False):
        bare, ours, short = (1e3 * best[name] for name in ("alone", "ours", "short"))
        print(f"| {n:,} | {bare:.3f} | {ours:.3f} | {ours / bare:.2f} | {short:.3f} |")


def _measured(cupy: Any, comm: Any, alone: Any, size: int, rounds: int) -> dict[str, float]:
    """The best times of each way, in seconds."""
    x = cupy.ones(size // 4, cupy.float32)
    out = cupy.empty_like(x)
    float32, total = cupy.cuda.nccl.NCCL_FLOAT32, cupy.cuda.nccl.NCCL_SUM

    def bare() -> None:
        stream = cupy.cuda.get_current_stream()
        alone.allReduce(x.data.ptr, out.data.ptr, x.size, float32, total, stream.ptr)
        stream.synchronize()

    ways: dict[str, Callable[[], Any]] = {
        "alone": bare,
        "ours": lambda: distributed.all_reduce(x, comm),
        "short": lambda: distributed.all_reduce(x, comm, wire="float16"),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds + 1):  # the first one connects the ranks
        for name, call in ways.items():
            distributed.barrier(comm)
            cupy.cuda.get_current_stream().synchronize()
            start = time.perf_counter()
            call()
            cupy.cuda.get_current_stream().synchronize()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
