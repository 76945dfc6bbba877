"""One round of averaging in the background: bucket after bucket."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fdbr.core.array_modules import array_module, lock
from fdbr.core.collective_log import cotangents_were_exchanged
from fdbr.distributed.calls import Call
from fdbr.distributed.exchange import check, exchange
from fdbr.distributed.gradients.averaging import Averaging
from fdbr.distributed.gradients.background import Background, Pending
from fdbr.distributed.gradients.weights import factor_out_of, weight_of, weighted_there
from fdbr.distributed.primitives import as_array

__all__ = ["Round"]


class Round:
    """The average of the gradients of one step, which is made in the background.

    Parameters
    ----------
    how
        How; all ranks begin the same rounds in the same order, and in each the same buckets.
    weight
        How many examples this rank has; `None` for equal shares.
    """

    __slots__ = ("_background", "_call", "_factor")

    def __init__(self, how: Averaging, weight: Any) -> None:
        self._background = Background.of(how.comm)
        self._call = how.call()
        self._factor: Pending | None = None
        if weight is not None:
            mine = weight_of(how.name, weight)
            mixed = cotangents_were_exchanged()
            self._factor = self._background.begin("weights", lambda: self._share(mine, mixed))

    def begin(self, arrays: Sequence[Any]) -> Pending:
        """Begin with a bucket: arrays and numbers, which nobody changes; averages like these."""
        arrays = [as_array(self._call, array) for array in arrays]
        check(self._call, self._background.comm, arrays)
        return self._background.begin("bucket", lambda: self._averages(arrays))

    def _averages(self, arrays: Sequence[Any]) -> list[Any]:
        if self._factor is not None:
            factor = self._factor.result()
            arrays = [weighted_there(array, factor) for array in arrays]
        outs = exchange(self._call, self._background.comm, arrays)
        assert outs is not None
        return _published(outs)

    def _share(self, weight: Any, mixed: bool) -> Any:
        """The factor of this rank's gradients."""
        comm = self._background.comm
        call = Call("all_reduce", "sum", where=self._call.where)
        (total,) = exchange(call, comm, [np.asarray(weight)])  # type: ignore[misc]
        return factor_out_of(weight, total, comm.size, mixed)


def _published(outs: Sequence[Any]) -> list[Any]:
    return [lock(out) if out.shape or array_module(out) is not np else out[()] for out in outs]
