"""Words from process to process outside of all collectives: who has ended, who has given up."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Notices"]


class Notices:
    """The post between the processes of a run.

    Nobody has to wait for a notice: they are read while a rank waits for something else.  Each has
    a kind, and goes to whoever listens to that.

    Attributes
    ----------
    ended
        What became of processes whose program is over, by their number.
    beats
        Functions that are called whenever the post is read.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self.mpi = mpi
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.ended: dict[int, str] = {}
        self.beats: list[Callable[[], None]] = []
        self._listeners: dict[str, Callable[[int, Any], None]] = {"ended": self._note_end}
        self._unheard: dict[str, list[tuple[int, Any]]] = {}
        self._comm = comm
        self._sent: list[Any] = []
        self._reading = threading.Lock()

    def listen(self, kind: str, listener: Callable[[int, Any], None]) -> None:
        """Have ``listener(rank, content)`` called for each notice of a kind, past ones too."""
        self._listeners[kind] = listener
        for rank, content in self._unheard.pop(kind, []):
            listener(rank, content)

    def post(self, kind: str, content: Any, to: Iterable[int]) -> None:
        """Send a notice to processes, other than this one."""
        data = json.dumps([kind, content]).encode()
        self._sent = [item for item in self._sent if not item[0].Test()]
        for rank in to:
            if rank != self.rank and rank not in self.ended:
                self._sent.append((self._comm.Isend([data, self.mpi.BYTE], rank), data))

    def read(self) -> None:
        """Hand on what has come."""
        if not self._reading.acquire(blocking=False):
            return  # another thread does, or a listener that waits
        try:
            status = self.mpi.Status()
            while self._comm.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
                data = bytearray(status.Get_count(self.mpi.BYTE))
                self._comm.Recv([data, self.mpi.BYTE], status.Get_source(), status.Get_tag())
                kind, content = json.loads(bytes(data))
                listener = self._listeners.get(kind)
                if listener is None:
                    self._unheard.setdefault(kind, []).append((status.Get_source(), content))
                else:
                    listener(status.Get_source(), content)
        finally:
            self._reading.release()
        for beat in self.beats:
            beat()

    def leave(self, text: str, seconds: float) -> None:
        """Say that this program is over, unless all of them are."""
        request = self._comm.Ibarrier()
        deadline = time.monotonic() + seconds
        while not request.Test():
            self.read()
            if time.monotonic() > deadline:
                self.post("ended", text, range(self.size))
                return
            time.sleep(0.001)

    def _note_end(self, rank: int, text: str) -> None:
        self.ended[rank] = text
