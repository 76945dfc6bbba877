"""The choice of a way for arrays on devices between the ranks at hand."""

import json
from typing import Any

from fdbr.core import devices
from fdbr.distributed.errors import DistributedError
from fdbr.distributed.transports.interface import Transport
from fdbr.distributed.transports.nccl import NCCL
from fdbr.distributed.transports.placed import PlacedTransport, Way
from fdbr.distributed.transports.staged import Direct, Staged

__all__ = ["own_device", "with_devices"]


def with_devices(host: Transport, timeout: float, *, nccl: bool | None = None) -> Transport:
    """A transport for arrays on devices, too; all its ranks call this at once.

    Over NCCL, where CuPy has it and each rank has a device of its own; else over the other
    transport, if it reads the memory of devices; else by way of host memory.

    Parameters
    ----------
    host
        The transport of arrays in host memory.
    timeout
        How many seconds a rank waits for others.
    nccl
        `False` for never, `True` for an error where it cannot be.
    """
    mine = _at_hand(host)
    ranks = [json.loads(text) for text in host.all_gather_bytes(json.dumps(mine).encode())]
    lacking = _lacking(ranks)
    if nccl and lacking:
        raise DistributedError(f"fdbr.distributed.world: backend 'nccl' cannot be had: {lacking}")
    if not lacking and nccl is not False:
        return PlacedTransport(host, NCCL(host, devices.accelerator(), mine["number"], timeout))
    if not any(rank["count"] for rank in ranks):
        return host
    direct = all(rank["direct"] for rank in ranks)
    way: Way = Direct(host) if direct else Staged(host)
    return PlacedTransport(host, way)


def own_device(host: Transport) -> None:
    """Make a device of this machine the current one, another for each rank.

    A program that has chosen one itself keeps it.
    """
    xp, count = _accelerator()
    if count > 1 and xp.cuda.runtime.getDevice() == 0:
        xp.cuda.Device(host.intra_rank % count).use()


def _accelerator() -> tuple[Any, int]:
    """The array module of the devices, and how many there are; 0 where there is none."""
    try:
        xp = devices.accelerator()
    except ImportError:
        return None, 0
    return xp, devices.devices_of(xp)


def _at_hand(host: Transport) -> dict[str, Any]:
    """The words in which this rank tells others of its device."""
    xp, count = _accelerator()
    if not count:
        why = "CuPy is not installed" if xp is None else "there is no GPU"
        return {"count": 0, "why": why, "node": host.node, "direct": True}
    nccl = getattr(xp.cuda, "nccl", None)
    has = getattr(nccl, "available", False)
    number = xp.cuda.runtime.getDevice()
    return {
        "count": count,
        "why": "" if has else "CuPy finds no NCCL (pip install nvidia-nccl-cu12)",
        "node": host.node,
        "number": number,
        "bus": _bus(xp, number),
        "direct": bool(getattr(host, "reads_devices", False)),
    }


def _bus(xp: Any, number: int) -> str:
    """A name of a device that is the same in all processes of a machine."""
    return str(getattr(xp.cuda.Device(number), "pci_bus_id", number))


def _lacking(ranks: list[dict[str, Any]]) -> str:
    """The reason for which NCCL cannot connect these ranks; empty if it can."""
    for rank, said in enumerate(ranks):
        if said["why"]:
            return f"on rank {rank} {said['why']}"
    owners: dict[tuple[int, str], int] = {}
    for rank, said in enumerate(ranks):
        other = owners.setdefault((said["node"], said["bus"]), rank)
        if other != rank:
            return f"ranks {other} and {rank} have the same device, {said['bus']}"
    return ""
