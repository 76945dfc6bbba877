"""Who takes part: communicators."""

import contextvars
import os
import threading
from collections.abc import Callable
from typing import Any

import attrs

from fdbr.core.tracer import follow_runs
from fdbr.distributed.errors import RankFailedError
from fdbr.distributed.failures import install
from fdbr.distributed.stopping import Stopping
from fdbr.distributed.transports.choosing import own_device, with_devices
from fdbr.distributed.transports.interface import Transport
from fdbr.distributed.transports.mpi import MPITransport, meet
from fdbr.distributed.transports.serial import SerialTransport
from fdbr.distributed.transports.threads import Collective, ThreadTransport
from fdbr.errors.checks import integer
from fdbr.errors.public import public
from fdbr.train.loop.interrupts import stop_together

__all__ = ["Communicator", "run_in_threads", "serial", "world"]

_LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "PMI_SIZE")


@public("fdbr.distributed")
@attrs.frozen(eq=False, repr=False)
class Communicator:
    """Some ranks that call collectives together.

    It is immutable, and made by `world`, `serial`, `run_in_threads` or `split`.

    Attributes
    ----------
    rank, size
        The number of this rank, from 0, and how many there are.
    intra_rank, intra_size
        The same among the ranks of this machine.
    node, nodes
        The number of this machine, and how many machines there are.
    backend
        What moves the bytes: ``"serial"``, ``"threads"``, ``"mpi"`` or ``"nccl"``.
    timeout
        How many seconds a rank waits for others in one collective.

    >>> from fdbr import distributed
    >>> distributed.serial()
    Communicator(rank=0, size=1, backend='serial')
    """

    transport: Transport
    timeout: float = 60.0

    def __attrs_post_init__(self) -> None:
        follow_runs()  # for what ranks do together, all traces that are under way note

    rank = property(lambda self: self.transport.rank)
    size = property(lambda self: self.transport.size)
    intra_rank = property(lambda self: self.transport.intra_rank)
    intra_size = property(lambda self: self.transport.intra_size)
    node = property(lambda self: self.transport.node)
    nodes = property(lambda self: self.transport.nodes)
    backend = property(lambda self: self.transport.name)

    def split(self, color: int | None, key: int | None = None) -> "Communicator | None":
        """The communicator of the ranks that give the same color.

        Parameters
        ----------
        color
            A number from 0; `None` for a rank that takes part in none.
        key
            By which the new ranks are ordered; ranks with the same key keep their order.

        Returns
        -------
        Communicator
            `None` where ``color`` is.

        >>> from fdbr import distributed
        >>> def f(comm):
        ...     part = comm.split(comm.rank % 2)
        ...     return part.rank, part.size
        >>> distributed.run_in_threads(f, 3)
        [(0, 2), (0, 1), (1, 2)]
        """
        where = "fdbr.distributed.Communicator.split"
        if color is not None:
            color = integer(where, "color", color, 0)
        key = self.rank if key is None else integer(where, "key", key)
        part = self.transport.split(color, key)
        return None if part is None else Communicator(part, self.timeout)

    def __repr__(self) -> str:
        return f"Communicator(rank={self.rank}, size={self.size}, backend={self.backend!r})"


@public("fdbr.distributed")
def serial() -> Communicator:
    """The communicator of one rank alone, for which every collective is what it is for one.

    >>> from fdbr import distributed
    >>> distributed.all_reduce(2.0, distributed.serial())
    np.float64(2.0)
    """
    return Communicator(SerialTransport())


_worlds: dict[tuple[str | None, float], Communicator] = {}
_hosts: list[MPITransport] = []


@public("fdbr.distributed")
def world(backend: str | None = None, timeout: float = 60.0) -> Communicator:
    """The communicator of all processes that were started together.

    Parameters
    ----------
    backend
        ``"mpi"``, ``"nccl"`` or ``"serial"``; if it is not given, MPI where an MPI launcher has
        started this process (``mpiexec -n 4 python train.py``), and `serial` elsewhere. CuPy's
        arrays go over NCCL then where CuPy has it and each rank has a GPU of its own, or else by
        way of MPI; with ``"nccl"`` it is an error if they cannot, with ``"mpi"`` they never do.
        On a machine with several GPUs each rank gets another one as its current device, unless
        the program has made one the current device before.
    timeout
        How many seconds a rank waits for others in one collective.

    Raises
    ------
    ModuleNotFoundError
        If mpi4py is wanted and not installed: ``pip install 'fdbr[mpi]'``.
    DistributedError
        If NCCL is wanted and cannot connect these ranks.

    >>> from fdbr import distributed
    >>> distributed.world("serial").size
    1
    """
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ValueError(
            f"fdbr.distributed.world: timeout must be a positive number of seconds, got {timeout!r}"
        )
    if backend not in (None, "mpi", "nccl", "serial"):
        raise ValueError(
            "fdbr.distributed.world: backend must be 'mpi', 'nccl', 'serial' or None, got "
            f"{backend!r}"
        )
    launched = any(map(os.environ.get, _LAUNCHED))
    if backend == "serial" or (backend is None and not launched):
        return serial()
    key = backend, float(timeout)
    if key not in _worlds:
        alone = backend == "nccl" and not launched
        host: Transport = SerialTransport() if alone else _transport(timeout)
        own_device(host)
        nccl = {"nccl": True, "mpi": False}.get(backend or "")
        _worlds[key] = Communicator(with_devices(host, timeout, nccl=nccl), timeout)
    return _worlds[key]


def _transport(timeout: float) -> Transport:
    """The transport of all processes, with the time-out, and for the first what goes with it."""
    if _hosts:
        return _hosts[0].duplicate(timeout)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # a RuntimeError if there is no MPI library
        raise ModuleNotFoundError(
            f"fdbr.distributed.world: mpi4py cannot be imported ({error}); "
            "pip install 'fdbr[mpi]', or an MPI library"
        ) from None
    notices, transport = meet(MPI, timeout)
    if notices.size > 1:
        install(notices, transport.flush)
        stop_together(Stopping(notices, timeout))
    _hosts.append(transport)
    return transport


@public("fdbr.distributed")
def run_in_threads(
    f: Callable[[Communicator], Any], size: int, *, timeout: float = 60.0
) -> list[Any]:
    """Call a function for each of some ranks that are threads of this process.

    It is for tests and notebooks: the ranks do what processes would do, one at a time where Python
    itself is at work.

    Parameters
    ----------
    f
        Given the communicator of its rank.
    size
        How many ranks.
    timeout
        How many seconds a rank waits for others in one collective.

    Returns
    -------
    list
        What it has returned, by rank.

    Raises
    ------
    Exception
        That of the rank which failed first; others that wait for it end with `RankFailedError`.
        So do ranks that wait in a collective for a rank that has returned.

    >>> from fdbr import distributed
    >>> distributed.run_in_threads(lambda comm: distributed.all_reduce(comm.rank, comm), 3)
    [np.int64(3), np.int64(3), np.int64(3)]
    """
    size = integer("fdbr.distributed.run_in_threads", "size", size, 1)
    collective = Collective(size, timeout)
    results: list[Any] = [None] * size
    errors: dict[int, BaseException] = {}

    def rank(number: int) -> None:
        transport = ThreadTransport(collective, number)
        comm = Communicator(transport, timeout)
        try:
            results[number] = f(comm)
            transport.returned()
        except BaseException as error:
            errors[number] = error
            collective.fail(number, error)

    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(rank, i), name=f"rank {i}", daemon=True
        )
        for i in range(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        first = collective.error[0] if collective.error else min(errors)
        raise next(
            (e for e in errors.values() if not isinstance(e, RankFailedError)), errors[first]
        )
    return results
