"""Triggers that follow from where a run is."""

from fdbr.messages import integer
from fdbr.train.loop.reports import Report
from fdbr.train.triggers.base import Trigger, stateless

__all__ = ["each_epoch", "every"]


def every(*, epochs: int | None = None, iterations: int | None = None) -> Trigger:
    """True of the last report of every so many epochs, or of every so many iterations.

    Parameters
    ----------
    epochs
        A positive integer.
    iterations
        A positive integer; if both are given, either suffices.

    Returns
    -------
    Trigger
        A predicate on reports; it has no state, so it may serve several stages.

    Raises
    ------
    TypeError
        If neither is given, or one is no integer.
    ValueError
        If one is not positive.

    >>> from fdbr import train
    >>> report = train.Report(7, 1, {}, None, train.Position(1, 3), 0.5)
    >>> train.every(iterations=7)(report), train.every(epochs=1)(report)
    (True, False)
    """
    if epochs is None and iterations is None:
        raise TypeError("fdbr.train.every: give epochs, iterations, or both")
    for name, number in (("epochs", epochs), ("iterations", iterations)):
        if number is not None:
            integer("fdbr.train.every", name, number, least=1)

    def triggered(report: Report) -> bool:
        if epochs is not None:
            position = report.position
            if position.batch == 0 and position.epoch % epochs == 0:
                return True
        return iterations is not None and report.iteration % iterations == 0

    given = {"epochs": epochs, "iterations": iterations}
    label = ", ".join(f"{name}={number}" for name, number in given.items() if number is not None)
    return stateless(f"every({label})", triggered)


each_epoch = every(epochs=1)
"""The last report of each epoch: when most stages are due."""
