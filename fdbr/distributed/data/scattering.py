"""Datasets in parts, one for each rank."""

from typing import Any

import attrs
import numpy as np

from fdbr import random
from fdbr.core.array_modules import lock
from fdbr.distributed.arguments import communicator_of, root_of
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.objects import all_gather_object, receive_object, send_object
from fdbr.errors.public import public
from fdbr.train.data.reading import count_of, examples_of, has_rows, take
from fdbr.train.data.sequences import Subset, View

__all__ = ["empty_dataset", "scatter_dataset"]

_NAME = "fdbr.distributed.scatter_dataset"


@public("fdbr.distributed")
def scatter_dataset(
    dataset: Any,
    comm: Communicator,
    key: Any = None,
    *,
    equal_lengths: bool = True,
    root: int = 0,
) -> Any:
    """The part of a dataset that belongs to one rank, which makes batches of it by itself.

    With `share`, all ranks together go through the same global batches whatever their number; here
    each rank goes through its own part, in batches of its own.

    Parameters
    ----------
    dataset
        A dataset, as for `fdbr.train.Batches`: either on all ranks, of which each then reads its
        part alone, or on the root alone, `None` elsewhere, which then sends the others theirs
        (with pickle; examples are read once).
    comm
        The ranks.
    key
        A key, to put the examples in random order first; that of the root counts.
    equal_lengths
        Whether all parts have as many examples, so that all ranks have as many batches: where it
        does not come out even, neighbours have an example in common.  Without, parts differ by at
        most one example, each example is in one of them, and some are empty if there are more
        ranks than examples.
    root
        The rank that has the dataset, if not all have.

    Returns
    -------
    dataset
        The part of this rank.

    Raises
    ------
    TypeError, ValueError
        If it is no dataset, or ranks have datasets of different lengths.

    >>> import numpy as np
    >>> from fdbr import distributed
    >>> def f(comm):
    ...     part = distributed.scatter_dataset(np.arange(5), comm, equal_lengths=False)
    ...     return [x.item() for x in part]
    >>> distributed.run_in_threads(f, 2)
    [[0, 1, 2], [3, 4]]
    """
    root = root_of("scatter_dataset", root, comm)
    text = count = None
    try:
        count = None if dataset is None else count_of(_NAME, dataset)
        if key is not None:
            random.fold_in(key, 0)  # which says so if it is no key
    except (TypeError, ValueError) as error:
        text = str(error)
    said = all_gather_object((count, text, key, bool(equal_lengths)), comm)
    count = _agreed(said, root)
    order = _order(said[root][2], count)
    parts = _parts(order, comm.size, said[root][3])
    if all(one[0] is not None for one in said):
        return Subset(dataset, lock(parts[comm.rank]))
    if comm.rank != root:
        return receive_object(comm, root, _TAG)
    for rank, part in enumerate(parts):
        if rank != root:
            send_object(_examples(dataset, part), comm, rank, _TAG)
    return _examples(dataset, parts[root])


_TAG = 1851


def _agreed(said: list[Any], root: int) -> int:
    """The number of examples, if what the ranks say of their datasets fits together."""
    wrong = [
        f"rank {rank}: {text.removeprefix(f'{_NAME}: ')}"
        for rank, (_, text, _, _) in enumerate(said)
        if text
    ]
    if wrong:
        raise ValueError(f"{_NAME}: {'; '.join(wrong)}")
    counts = [count for count, _, _, _ in said]
    there = {count for count in counts if count is not None}
    alone = [rank for rank, count in enumerate(counts) if count is not None] == [root]
    if counts[root] is None or not (alone or None not in counts) or len(there) > 1:
        raise ValueError(
            f"{_NAME}: all ranks must have the same dataset, or rank {root} alone, and the others "
            f"None; they have {counts} examples"
        )
    return int(counts[root])


def _order(key: Any, count: int) -> Any:
    return np.arange(count) if key is None else np.asarray(random.permutation(key, count))


def _parts(order: Any, size: int, equal: bool) -> list[Any]:
    if not equal:
        return np.array_split(order, size)
    each = -(-len(order) // size)
    begins = [len(order) * rank // size for rank in range(size)]
    return [order[begin : begin + each] for begin in begins]


def _examples(dataset: Any, indices: Any) -> Any:
    """Examples, read: a tree of arrays where they lie in such, and else a list."""
    if has_rows(dataset):
        return take(dataset, indices)
    return examples_of(dataset, indices)


@attrs.frozen(eq=False)
class Empty(View):
    """Examples of which there is nothing but their number."""

    count: int

    def __len__(self) -> int:
        return self.count

    def example(self, index: int) -> Any:
        return ()


@public("fdbr.distributed")
def empty_dataset(dataset: Any, comm: Communicator | None = None, root: int = 0) -> Any:
    """A dataset of as many examples as another, each of them an empty tuple.

    It is for ranks that take part in the iterations, and get what they compute with from other
    ranks: the later parts of a model that lies on several.

    Parameters
    ----------
    dataset
        A dataset, as for `fdbr.train.Batches`.
    comm
        With these ranks, ``dataset`` is that of the root, and is ignored elsewhere.
    root
        The rank that has it.

    Returns
    -------
    sequence
        A dataset.

    Raises
    ------
    TypeError, ValueError
        If it is no dataset.

    >>> import numpy as np
    >>> from fdbr import distributed, train
    >>> list(train.Batches(distributed.empty_dataset(np.arange(5)), size=2))
    [(), (), ()]
    """
    name = "fdbr.distributed.empty_dataset"
    if comm is None:
        return Empty(count_of(name, dataset))
    root = root_of("empty_dataset", root, communicator_of("empty_dataset", comm))
    text = count = None
    if comm.rank == root:
        try:
            count = count_of(name, dataset)
        except (TypeError, ValueError) as error:
            text = str(error)
    count, text = all_gather_object((count, text), comm)[root]
    if text is not None:
        raise ValueError(text)
    return Empty(count)
