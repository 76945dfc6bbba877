"""Searches: where the next configuration of a sweep comes from, and who learns its outcome."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from fdbr.core.devices import optional
from fdbr.errors.checks import describe, integer
from fdbr.errors.public import public

__all__ = ["Search", "as_search", "optuna_search"]


class Search(Protocol):
    """The protocol of what proposes configurations and is told what came of them."""

    def ask(self) -> Any:
        """The next configuration, with something by which it is known again; `None` at the end.

        A pair ``(config, token)``.
        """
        ...

    def tell(self, token: Any, metrics: dict[str, Any] | None) -> None:
        """Tell the last metrics of a run; `None` if it failed."""
        ...


class _Listed:
    """The configurations of a list, or of any iterable."""

    def __init__(self, configs: Iterable[Any]) -> None:
        self._left: Iterator[Any] = iter(configs)

    def ask(self) -> Any:
        for config in self._left:
            return config, None
        return None

    def tell(self, token: Any, metrics: dict[str, Any] | None) -> None:
        """Nothing follows from it."""


class _Optuna:
    """The trials of a study of Optuna."""

    def __init__(self, study: Any, make: Callable[[Any], Any], trials: int, metric: str) -> None:
        self._study, self._make, self._left, self._metric = study, make, trials, metric

    def ask(self) -> Any:
        if not self._left:
            return None
        self._left -= 1
        trial = self._study.ask()
        return self._make(trial), trial

    def tell(self, token: Any, metrics: dict[str, Any] | None) -> None:
        value = None if metrics is None else metrics.get(self._metric)
        if metrics is not None and self._metric not in metrics:
            raise ValueError(
                f"fdbr.train.optuna_search: the last report of a run had no metric "
                f"{self._metric!r}; it had {', '.join(metrics) or 'none'}"
            )
        if value is None:  # it failed, or is not a number
            self._study.tell(token, state=_states().FAIL)
        else:
            self._study.tell(token, value)


def _states() -> Any:
    return optional("train.optuna_search", "optuna.trial", "sweep").TrialState


@public("fdbr.train")
def optuna_search(study: Any, make: Callable[[Any], Any], trials: int, metric: str) -> Search:
    """The configurations that a study of Optuna proposes, one after the other.

    `Optuna <https://optuna.org>`_ is told the last value of the metric of each run, and proposes
    more of what was good.  A study in a database continues where it stopped.

    Parameters
    ----------
    study
        ``optuna.create_study(direction="minimize")``.
    make
        ``make(trial)``: the configuration, from ``trial.suggest_float("rate", 1e-4, 1e-1)`` …
    trials
        How many runs.
    metric
        The metric by whose last value a run is judged.

    Returns
    -------
    search
        For `sweep`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be; by the sweep, if no such metric is reported.
    """
    if not (hasattr(study, "ask") and hasattr(study, "tell")):
        raise TypeError(
            f"fdbr.train.optuna_search: study must have ask and tell, not {describe(study)}"
        )
    count = integer("fdbr.train.optuna_search", "trials", trials, least=1)
    return _Optuna(study, make, count, metric)


def as_search(configs: Any) -> Search:
    """A search, or the list of configurations as one."""
    if hasattr(configs, "ask") and hasattr(configs, "tell"):
        return configs
    if isinstance(configs, str | bytes | dict) or not isinstance(configs, Iterable):
        raise TypeError(
            "fdbr.train.sweep: configs must be a list of configurations, such as train.grid gives, "
            f"or a search, such as train.optuna_search, not {describe(configs)}"
        )
    return _Listed(configs)
