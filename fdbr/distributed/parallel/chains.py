"""Components of a model on different ranks, which give each other what they compute."""

from collections.abc import Sequence
from typing import Any, Self

import attrs

from fdbr import nn, random, tree
from fdbr.distributed.arguments import communicator_of
from fdbr.distributed.collectives import receive, send
from fdbr.distributed.communicator import Communicator
from fdbr.distributed.objects import all_gather_object, receive_object, send_object
from fdbr.distributed.parallel.forms import form_of, zeros_of
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.tree import frozen, static

__all__ = ["MultiNodeSequential"]

_TAG, _FORM_TAG = 111, 112


@attrs.frozen
class _Wire:
    """From which ranks a component takes its inputs, and to which it gives its output."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


@public("fdbr.distributed")
@frozen
class MultiNodeSequential(nn.Layer):
    """Components of a model, each on one rank, that are called in order on each.

    It is ChainerMN's ``MultiNodeChainList``. All ranks call it, and all differentiate it: each gets
    the gradients of its own components.

    Attributes
    ----------
    components
        This rank's layers.
    wires
        From where each takes its inputs, and where its output goes.
    comm
        The ranks.

    >>> import fdbr
    >>> from fdbr import distributed
    >>> @fdbr.frozen
    ... class Times(fdbr.nn.Layer):
    ...     factor: float
    ...     def __call__(self, x):
    ...         return self.factor * x
    >>> def f(comm):
    ...     to, source = (1, None) if comm.rank == 0 else (None, 0)
    ...     own = (Times(2.0 + comm.rank), source, to)
    ...     model = distributed.MultiNodeSequential.init([own], comm)
    ...     def loss(model, x):
    ...         y = model(x)
    ...         return 0.0 if y is None else y**2
    ...     value, grads = fdbr.value_and_grad(loss)(model, 1.0)
    ...     return float(value), float(grads.components[0].factor)
    >>> distributed.run_in_threads(f, 2)
    [(0.0, 36.0), (36.0, 24.0)]
    """

    components: tuple[Any, ...]
    wires: tuple[Any, ...] = static(repr=False)
    comm: Communicator = static(repr=False)

    @classmethod
    def init(cls, components: Sequence[tuple[Any, Any, Any]], comm: Communicator) -> Self:
        """A model of this rank's components; all ranks call it, each with its own.

        Parameters
        ----------
        components
            Tuples of a layer, a rank or ranks from which its inputs come (`None`: it takes the
            input of the model), and a rank or ranks to which its output goes (`None`: it is the
            output of the model on this rank).
        comm
            The ranks.

        Raises
        ------
        TypeError, ValueError
            On all ranks, if ranks would wait for each other, or for what nobody sends; if a rank
            has two outputs. Nothing has been sent then.
        """
        comm = communicator_of("MultiNodeSequential.init", comm)
        wires: tuple[_Wire, ...] = ()
        error: Exception | None = None
        try:
            wires = tuple(_wire(i, entry, comm) for i, entry in enumerate(components))
            if sum(not wire.targets for wire in wires) > 1:
                raise ValueError(
                    f"{_WHERE}: rank {comm.rank} has several components without a rank to which "
                    "they give their outputs; one alone is the output of the model"
                )
        except (TypeError, ValueError) as found:
            error = found
        told = all_gather_object((wires, error and str(error)), comm)
        if error is not None:
            raise error
        for rank, (_, text) in enumerate(told):
            if text is not None:
                raise ValueError(f"{_WHERE}: rank {rank} has an error: {text}")
        _check([wires for wires, _ in told])
        return cls(tuple(entry[0] for entry in components), wires, comm)

    def __call__(self, *inputs: Any) -> Any:
        """The output of the model, on ranks that have it; `None` on others.

        Parameters
        ----------
        inputs
            What components take that have no ranks from which inputs come.
        """
        return self._run(inputs, lambda layer, given, number: (layer(*given), layer))[0]

    def train(self, *inputs: Any, key: Any = None) -> tuple[Any, Self]:
        """The output in training, and the model of the successors.

        Parameters
        ----------
        inputs
            As of a call.
        key
            A key, of which each component gets its own.
        """

        def call(layer: Any, given: Any, number: int) -> tuple[Any, Any]:
            if not hasattr(layer, "train"):
                return layer(*given), layer
            return layer.train(*given, key=None if key is None else random.fold_in(key, number))

        out, after = self._run(inputs, call)
        return out, tree.replace(self, components=after)

    def _run(self, inputs: Any, call: Any) -> tuple[Any, tuple[Any, ...]]:
        result, after = None, []
        pairs = zip(self.components, self.wires, strict=True)
        for number, (layer, wire) in enumerate(pairs):
            given = [_received(self.comm, rank) for rank in wire.sources] or inputs
            out, successor = call(layer, given, number)
            after.append(successor)
            for rank in wire.targets:
                send_object(form_of(out), self.comm, rank, _FORM_TAG)
                send(out, self.comm, rank, _TAG)
            if not wire.targets:
                result = out
        return result, tuple(after)


_WHERE = "fdbr.distributed.MultiNodeSequential"


def _received(comm: Communicator, source: int) -> Any:
    like = zeros_of(receive_object(comm, source, _FORM_TAG))
    return receive(like, comm, source, _TAG)


def _wire(position: int, entry: Any, comm: Communicator) -> _Wire:
    if not isinstance(entry, tuple) or len(entry) != 3 or not callable(entry[0]):
        raise TypeError(
            f"{_WHERE}: component {position} must be a tuple (layer, from, to), got "
            f"{describe(entry)}"
        )
    sources, targets = (
        () if ranks is None else (ranks,) if isinstance(ranks, int) else tuple(ranks)
        for ranks in entry[1:]
    )
    for rank in (*sources, *targets):
        if not isinstance(rank, int) or not 0 <= rank < comm.size:
            raise ValueError(
                f"{_WHERE}: component {position} of rank {comm.rank} names rank {rank!r}; there "
                f"are ranks 0 to {comm.size - 1}"
            )
    return _Wire(sources, targets)


def _check(wiring: list[tuple[_Wire, ...]]) -> None:
    """Raise if a run of all ranks would not end, or leave messages behind."""
    sent: dict[tuple[int, int], int] = {}
    at = [[0, 0] for _ in wiring]  # the component, and how many inputs of it have come
    moved = True
    while moved:
        moved = False
        for rank, wires in enumerate(wiring):
            while at[rank][0] < len(wires):
                wire = wires[at[rank][0]]
                if at[rank][1] < len(wire.sources):
                    way = wire.sources[at[rank][1]], rank
                    if not sent.get(way):
                        break
                    sent[way] -= 1
                    at[rank][1] += 1
                else:
                    for target in wire.targets:
                        sent[rank, target] = sent.get((rank, target), 0) + 1
                    at[rank] = [at[rank][0] + 1, 0]
                moved = True
    waiting = [
        f"component {at[rank][0]} of rank {rank} waits for rank "
        f"{wires[at[rank][0]].sources[at[rank][1]]}"
        for rank, wires in enumerate(wiring)
        if at[rank][0] < len(wires)
    ]
    if waiting:
        raise ValueError(
            f"{_WHERE}: the components would wait for ever: {'; '.join(waiting)}; give them in an "
            "order in which what each takes has been sent before"
        )
    left = [f"{count} from rank {a} to rank {b}" for (a, b), count in sent.items() if count]
    if left:
        raise ValueError(
            f"{_WHERE}: nobody takes these outputs: {', '.join(left)}; name the sender as a rank "
            "from which a component there takes its inputs"
        )
