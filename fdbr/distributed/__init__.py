"""The same training step on many processes: communicators, differentiable collectives, and what
is built of them.

A script that runs alone runs on many processes by ``mpiexec -n 4 python script.py``, where it takes
its communicator from `world`.
"""

from fdbr.distributed.collectives import (
    after,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    receive,
    reduce,
    reduce_scatter,
    scatter,
    send,
    send_receive,
)
from fdbr.distributed.communicator import Communicator, run_in_threads, serial, world
from fdbr.distributed.data.keys import fold_in_rank, synchronized
from fdbr.distributed.data.scattering import empty_dataset, scatter_dataset
from fdbr.distributed.data.sharing import broadcast_batches, share
from fdbr.distributed.devices import data_parallel
from fdbr.distributed.errors import (
    CollectiveTimeoutError,
    DistributedError,
    MismatchError,
    RankFailedError,
)
from fdbr.distributed.gradients.overlap import value_and_grad
from fdbr.distributed.gradients.transformation import DoubleBufferingState, average_gradients
from fdbr.distributed.loop.decisions import agreed, until
from fdbr.distributed.loop.evaluation import evaluate
from fdbr.distributed.loop.reports import aggregate
from fdbr.distributed.loop.roots import on_root
from fdbr.distributed.loop.snapshots.resuming import resume
from fdbr.distributed.loop.snapshots.stage import snapshot
from fdbr.distributed.normalization import SyncBatchNorm, all_reduce_buffers, sync_batch_norm
from fdbr.distributed.objects import (
    all_gather_object,
    broadcast_object,
    gather_object,
    receive_object,
    scatter_object,
    send_object,
)
from fdbr.distributed.parallel.chains import MultiNodeSequential
from fdbr.distributed.parallel.optimizers import sharded
from fdbr.distributed.parallel.parameters import Shard, gather_params, shard_params
from fdbr.distributed.parallel.pipelines import pipeline
from fdbr.distributed.parallel.schedules import Schedule, Timeline, schedule
from fdbr.distributed.parallel.sharding import shard, unshard
from fdbr.distributed.parallel.shards import from_shards, to_shards
from fdbr.distributed.parallel.tensor import (
    TensorAttention,
    TensorEmbed,
    TensorLinear,
    tensor_softmax_cross_entropy,
)
from fdbr.errors.names import missing_from

__all__ = [
    "CollectiveTimeoutError",
    "Communicator",
    "DistributedError",
    "DoubleBufferingState",
    "MismatchError",
    "MultiNodeSequential",
    "RankFailedError",
    "Schedule",
    "Shard",
    "SyncBatchNorm",
    "TensorAttention",
    "TensorEmbed",
    "TensorLinear",
    "Timeline",
    "after",
    "aggregate",
    "agreed",
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "all_reduce_buffers",
    "all_to_all",
    "average_gradients",
    "barrier",
    "broadcast",
    "broadcast_batches",
    "broadcast_object",
    "data_parallel",
    "empty_dataset",
    "evaluate",
    "fold_in_rank",
    "from_shards",
    "gather",
    "gather_object",
    "gather_params",
    "on_root",
    "pipeline",
    "receive",
    "receive_object",
    "reduce",
    "reduce_scatter",
    "resume",
    "run_in_threads",
    "scatter",
    "scatter_dataset",
    "scatter_object",
    "schedule",
    "send",
    "send_object",
    "send_receive",
    "serial",
    "shard",
    "shard_params",
    "sharded",
    "share",
    "snapshot",
    "sync_batch_norm",
    "synchronized",
    "tensor_softmax_cross_entropy",
    "to_shards",
    "unshard",
    "until",
    "value_and_grad",
    "world",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
globals().update(__getattr__=missing_from(__name__))  # type checkers see no `__getattr__`
