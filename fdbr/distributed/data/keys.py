"""Keys: one for each rank, and one for all."""

from typing import Any

import attrs

from fdbr import random, tree
from fdbr.core.array_modules import is_array, lock
from fdbr.distributed.arguments import communicator_of, root_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.objects import broadcast_object
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.data.batches import Batches
from fdbr.train.data.prefetching.prefetch import Ahead
from fdbr.train.data.streams import Stream
from fdbr.train.loop.zipping import Zip

__all__ = ["fold_in_rank", "synchronized"]

_RANKS = 0x72616E6B
"""Folded in before the rank, so that nobody's epochs, steps or layers have the same key."""


@public("fdbr.distributed")
def fold_in_rank(key: Any, comm: Communicator) -> Any:
    """The key of this rank, for draws that must differ between ranks.

    Dropout in data-parallel training, augmentation, and noise differ: each rank has examples of its
    own.  What must agree is drawn with plain keys, which are the same on all ranks because the
    program is: parameters at the beginning, the order of examples, the choice of hyperparameters.

    Fold the rank in where a key is used, ``random.split(state_key)`` first and `fold_in_rank` of
    the one that the step draws with: the state then is the same on all ranks, and a run continues
    from it on another number of them.

    Parameters
    ----------
    key
        A key, the same on all ranks.
    comm
        The ranks.

    Returns
    -------
    array
        uint64, shape ``(2,)``.

    Raises
    ------
    TypeError, ValueError
        If ``key`` is no key.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> key = fdbr.random.key(0)
    >>> first, second = distributed.run_in_threads(lambda c: distributed.fold_in_rank(key, c), 2)
    >>> bool((first == second).all())
    False
    """
    comm = communicator_of("fold_in_rank", comm)
    return random.fold_in(random.fold_in(key, _RANKS), comm.rank)


@public("fdbr.distributed")
def synchronized(x: Any, comm: Communicator, root: int = 0) -> Any:
    """A key, or batches with a key, as one rank has it, on all ranks.

    It is for keys that are not the same by themselves: made of the time, or of the system's noise.

    Parameters
    ----------
    x
        A key; or `fdbr.train.Batches`, `fdbr.train.Stream`, or what `fdbr.train.prefetch` and
        `fdbr.train.zip` make of these, whose keys are replaced.
    comm
        The ranks.
    root
        The rank whose keys they are.

    Returns
    -------
    key or source
        Of the kind that was given.

    Raises
    ------
    TypeError
        If ``x`` is neither.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> def f(comm):
    ...     return distributed.synchronized(fdbr.random.key(comm.rank), comm, root=1)
    >>> distributed.run_in_threads(f, 2)
    [array([1, 0], dtype=uint64), array([1, 0], dtype=uint64)]
    """
    root = root_of("synchronized", root, comm)
    if is_array(x):
        random.fold_in(x, 0)  # which says so if it is no key
        return lock(broadcast_object(x, comm, root))
    if isinstance(x, Batches):
        return tree.replace(x, key=_key(x, comm, root))
    if isinstance(x, Stream):
        return x.with_key(_key(x, comm, root))
    if isinstance(x, Ahead):
        return attrs.evolve(x, batches=synchronized(x.batches, comm, root))
    if isinstance(x, Zip):
        parts = {name: synchronized(source, comm, root) for name, source in x.sources.items()}
        return Zip(parts, x.is_tuple)
    raise TypeError(
        "fdbr.distributed.synchronized: it takes a key, fdbr.train.Batches, or a "
        f"fdbr.train.Stream, got {describe(x)}; of other sources, make them with a "
        "synchronized key"
    )


def _key(source: Any, comm: Communicator, root: int) -> Any:
    key = broadcast_object(source.key, comm, root)
    if (key is None) != (source.key is None):
        raise ValueError(
            f"fdbr.distributed.synchronized: of the batches of rank {root} and rank {comm.rank}, "
            "only one has a key; make them alike"
        )
    return None if key is None else lock(key)
