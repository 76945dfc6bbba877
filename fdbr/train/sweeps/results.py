"""Results: the reports of all runs of a sweep, as a tidy table."""

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from fdbr.core.devices import optional
from fdbr.errors.checks import describe
from fdbr.errors.public import public
from fdbr.train.sweeps.configurations import flat
from fdbr.train.sweeps.records import Record, records

__all__ = ["Results", "results"]


@public("fdbr.train")
@attrs.frozen
class Results:
    """A table with a row for each report of each run (it is *tidy*: Wickham 2014).

    Attributes
    ----------
    columns
        From names to values, one a row; `None` where a row has none.  ``run`` and ``state``,
        ``config.…`` for each field of the configurations, ``iteration``, ``epoch``, ``seconds``,
        and the metrics.
    """

    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, as dicts."""
        names = list(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, values, strict=True))

    def last(self) -> "Results":
        """The last row of each run."""
        return _table(list({row["run"]: row for row in self.rows()}.values()))

    def best(self, metric: str, mode: str = "min") -> dict[str, Any]:
        """The row with the least value of a metric, or with ``mode="max"`` the greatest.

        Raises
        ------
        ValueError
            If no row has that metric, or ``mode`` is neither.
        """
        if mode not in ("min", "max"):
            raise ValueError(f"fdbr.train.Results.best: mode must be 'min' or 'max', not {mode!r}")
        self._check("best", metric)
        rows = [row for row in self.rows() if row[metric] is not None]
        return (min if mode == "min" else max)(rows, key=lambda row: row[metric])

    def varied(self) -> tuple[str, ...]:
        """The columns of configurations in which runs differ."""
        names = [name for name in self.columns if name.startswith("config.")]
        return tuple(name for name in names if len({repr(v) for v in self.columns[name]}) > 1)

    def save(self, path: str | Path) -> None:
        """Write the table to a ``.csv`` or, if ``pyarrow`` is installed, a ``.parquet`` file.

        Raises
        ------
        ValueError
            If the path ends otherwise.
        OSError
            If the file cannot be written.
        """
        suffix = Path(path).suffix
        if suffix == ".csv":
            with open(path, "w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(self.columns)
                writer.writerows(zip(*self.columns.values(), strict=True))
        elif suffix == ".parquet":
            arrow = optional("train.Results.save", "pyarrow", "sweep")
            parquet = optional("train.Results.save", "pyarrow.parquet", "sweep")
            parquet.write_table(arrow.table({n: _alike(c) for n, c in self.columns.items()}), path)
        else:
            raise ValueError(
                f"fdbr.train.Results.save: path must end in .csv or .parquet, not {str(path)!r}"
            )

    def plot(self, path: str | Path, metric: str, x: str = "iteration") -> None:
        """Draw a metric of all runs in one picture, named by what they differ in.

        Parameters
        ----------
        path
            The picture: PNG, SVG or PDF, by its ending.
        metric
            The name of a column, on the vertical axis.
        x
            The name of another one, on the horizontal axis.

        Raises
        ------
        ImportError
            If ``matplotlib`` is not installed.
        ValueError
            If there is no such column.
        """
        for name in (metric, x):
            self._check("plot", name)
        optional("train.Results.plot", "matplotlib", "examples")
        Figure = optional("train.Results.plot", "matplotlib.figure", "examples").Figure
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        varied = self.varied()
        for _, group in itertools.groupby(self.rows(), key=lambda row: row["run"]):
            rows = [row for row in group if row[metric] is not None and row[x] is not None]
            if rows:
                label = ", ".join(f"{n.removeprefix('config.')} {rows[0][n]}" for n in varied)
                points = [row[x] for row in rows], [row[metric] for row in rows]
                axes.plot(*points, "o-" if len(rows) == 1 else "-", label=label or rows[0]["run"])
        axes.set(xlabel=x, ylabel=metric)
        if len({row["run"] for row in self.rows()}) <= 20:
            axes.legend(fontsize="small")
        figure.savefig(path, dpi=120)

    def _check(self, method: str, name: str) -> None:
        if not any(value is not None for value in self.columns.get(name, ())):
            raise ValueError(
                f"fdbr.train.Results.{method}: there is no value of {name!r}; the columns are "
                f"{', '.join(self.columns)}"
            )

    def __repr__(self) -> str:
        runs = len(set(self.columns.get("run", ())))
        return f"<Results of {runs} runs: {len(self)} rows of {', '.join(self.columns)}>"


@public("fdbr.train")
def results(folder: str | Path) -> Results:
    """The reports of all runs in the folder of a `sweep`, those that are under way included.

    Parameters
    ----------
    folder
        That of the sweep.

    Raises
    ------
    FileNotFoundError
        If there is no such folder.

    >>> import tempfile
    >>> from fdbr import train
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     train.results(folder)
    <Results of 0 runs: 0 rows of run, state, iteration, epoch, seconds>
    """
    if not isinstance(folder, str | Path):
        raise TypeError(f"fdbr.train.results: folder must be a path, not {describe(folder)}")
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"fdbr.train.results: there is no folder {folder}")
    return _table([row for record in records(folder) for row in _rows(record)])


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    state = record.status().get("state", "waiting")
    values = flat(record.config())
    config = {f"config.{name}" if name else "config": value for name, value in values.items()}
    for entry in record.entries()[0] or [{}]:
        yield {"run": record.name, "state": state, **config, **entry}


def _table(rows: list[dict[str, Any]]) -> Results:
    first = ["run", "state"]
    names = dict.fromkeys(name for row in rows for name in row)
    configs = [name for name in names if name.startswith("config")]
    times = ["iteration", "epoch", "seconds"]
    ordered = dict.fromkeys([*first, *configs, *times, *names])
    return Results({name: tuple(row.get(name) for row in rows) for name in ordered})


def _alike(column: Sequence[Any]) -> list[Any]:
    """A column whose values have one type: those of different ones become text."""
    kinds = {type(value) for value in column if value is not None}
    if len(kinds) <= 1 or kinds <= {int, float}:
        return list(column)
    return [None if value is None else str(value) for value in column]
