"""Ranks that are threads, each with a device, and a stand-in for NCCL that moves bytes between."""

import contextlib
from collections.abc import Iterator

import pytest
import shadow
from shadow import devices, nccl

from fdbr import backend
from fdbr.core import devices as libraries
from fdbr.distributed import Communicator, run_in_threads
from fdbr.distributed.transports.choosing import own_device, with_devices


@contextlib.contextmanager
def several_devices(count: int = 4) -> Iterator[nccl.NCCL]:
    """As many stand-in devices as that, and a new stand-in for NCCL."""
    backend.array_module(shadow.asarray(0.0))
    if shadow.module not in backend.several:
        backend.several.append(shadow.module)  # for good, as it would be when one is met
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libraries, "accelerator", lambda: shadow.module)
        patch.setattr(devices, "COUNT", count)
        libraries.devices_of.cache_clear()
        made = nccl.NCCL()
        patch.setattr(shadow.module.cuda, "nccl", made)
        yield made
        made.close()
    libraries.devices_of.cache_clear()


def run_on_devices(f, size, *, timeout=10.0, use_nccl=None):
    """`run_in_threads`, where each rank has a device of its own as the current one."""

    def rank(comm):
        own_device(comm.transport)
        return f(Communicator(with_devices(comm.transport, timeout, nccl=use_nccl), timeout))

    return run_in_threads(rank, size, timeout=timeout)
