"""What holds here of each clause about ChainerMN in counterparts/chainer.json, as for Chainer's."""

import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fdbr
from fdbr import distributed, nn, random, train, tree
from fdbr.distributed import run_in_threads

__all__ = ["CLAUSES"]

ALONE = distributed.serial()


def _gives_a_token(send: Any) -> bool:
    token = send({"a": 1.0, "b": np.zeros(2)}, ALONE, to=0)
    like = {"a": 0.0, "b": np.ones(2)}
    return np.shape(token) == () and distributed.receive(like, ALONE, source=0)["a"] == 1.0


def _like(receive: Any) -> bool:
    distributed.send((1.0, np.zeros(2)), ALONE, to=0)
    return receive((0.0, np.ones(2)), ALONE, source=0)[1].tolist() == [0.0, 0.0]


def _stacks(gather: Any) -> bool:
    first, _ = run_in_threads(lambda comm: gather(np.full(3, comm.rank), comm), 2)
    return first.tolist() == [[0, 0, 0], [1, 1, 1]]


def _divides(f: Any) -> bool:
    _, second = run_in_threads(lambda comm: f(np.arange(4) + 10 * comm.rank, comm), 2)
    return second.tolist() in ([2, 3], [2, 3, 12, 13])


def _gives_the_model(broadcast: Any) -> bool:
    def model(comm: Any) -> Any:
        own = nn.Linear.init(random.key(comm.rank), 2, 2)
        return own, broadcast(own, comm)

    (own, first), (other, second) = run_in_threads(model, 2)
    same = all(map(np.array_equal, tree.leaves(first), tree.leaves(second)))
    return same and not np.array_equal(own.weight, other.weight)


def _means(average_gradients: Any) -> bool:
    def updated(comm: Any) -> Any:
        averages = average_gradients(comm)
        return averages.update(np.array([comm.rank, 1.0]), averages.init(np.zeros(2)))[0]

    return [one.tolist() for one in run_in_threads(updated, 2)] == [[0.5, 1.0]] * 2


def _over_examples(evaluate: Any) -> bool:
    report = train.Report(1, 1, {}, 2.0, train.Position(1, 0), 0.1)

    def mean(comm: Any) -> Any:
        own = [np.arange(3.0)] if comm.rank else [np.array([7.0])]
        stage = evaluate(lambda state, x: {"mean": x.mean()}, comm, own)
        return next(stage(iter([report]))).metrics["test/mean"]

    return run_in_threads(mean, 2) == [2.5, 2.5]


def _on_another_number(snapshot: Any) -> bool:
    folder = Path(tempfile.mkdtemp())

    def trained(comm: Any) -> Any:
        last = distributed.resume(folder, 0.0, comm)
        step = lambda state, batch: (state + 1.0, {})
        reports = train.fit(step, 0.0, train.Batches(np.arange(3), 1), epochs=2, resume=last)
        stage = snapshot(folder, comm, train.every(iterations=1))
        for report in stage(reports):
            if report.iteration == 4:
                break
        return report.state

    first = run_in_threads(trained, 2)
    return (
        first == [4.0] * 2 and run_in_threads(lambda comm: _resumed(folder, comm), 3) == [4.0] * 3
    )


def _resumed(folder: Path, comm: Any) -> Any:
    return distributed.resume(folder, 0.0, comm).state


def _keys(synchronized: Any) -> bool:
    def order(comm: Any) -> Any:
        batches = train.Batches(np.arange(9), 9, key=random.key(comm.rank))
        return next(iter(synchronized(batches, comm))).tolist()

    first, second = run_in_threads(order, 2)
    return first == second


def _range(scatter_dataset: Any) -> bool:
    parts = run_in_threads(lambda comm: list(scatter_dataset(np.arange(4), comm)), 2)
    return parts == [[0, 1], [2, 3]]


def _goes_around(data_parallel: Any) -> bool:
    gradient = fdbr.grad(lambda w, x: (w * x).mean())
    x = np.arange(5.0)
    return bool(np.isclose(data_parallel(gradient, ["cpu", "cpu"])(1.0, x), gradient(1.0, x)))


def _changes_nothing(all_reduce_buffers: Any) -> bool:
    layer = nn.BatchNorm.init(None, 1)
    other = tree.replace(layer, running_mean=layer.running_mean + 2)
    both = run_in_threads(lambda comm: all_reduce_buffers((layer, other)[comm.rank], comm), 2)
    return [one.running_mean.item() for one in both] == [1.0, 1.0]


CLAUSES: dict[str, Callable[[Any], Any]] = {
    "alone where no launcher has started the process": lambda f: f("serial").size == 1,
    "gives None for a color of None": lambda f: f(ALONE, None) is None,
    "takes a tree and the communicator, and gives a token": _gives_a_token,
    "gives a token, Chainer's a variable without a value": _gives_a_token,
    "takes a tree like what comes": _like,
    "takes a tree before the communicator": lambda f: (
        list(inspect.signature(f).parameters)[:2] == ["x", "comm"]
    ),
    "the parts are stacked along a new first axis, Chainer's are a tuple": _stacks,
    "the first axis is divided, Chainer's takes a tuple": _divides,
    "gives the model, Chainer's changes it": _gives_the_model,
    "gives the means, Chainer's changes the model": _means,
    "a gradient transformation for optim.chain": lambda f: isinstance(
        f(ALONE), train.optim.Optimizer
    ),
    "means over all examples, Chainer's over ranks": _over_examples,
    "a stage, from which resume goes on with another number of ranks too": _on_another_number,
    "batches with the root's key, Chainer's has the state of a generator": _keys,
    "of np.arange(n)": _range,
    "goes around a function of a batch, such as that of gradients": _goes_around,
    "takes comm=": lambda f: "comm" in inspect.signature(f.init).parameters,
    "gives the model, Chainer's changes it in the loop": _changes_nothing,
    "the components of a rank come at once, Chainer's are added one by one": lambda f: (
        list(inspect.signature(f.init).parameters) == ["components", "comm"]
        and f.init([(nn.Linear.init(random.key(0), 2, 3), None, None)], ALONE)(np.ones(2)).shape
        == (3,)
    ),
    "the value comes first, Chainer's the delegate variable": lambda f: f(2.0, 0.0) == 2.0,
}
"""The check of each clause that is in no fixed form."""
