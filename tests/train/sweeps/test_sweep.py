"""Sweeps: reports stream, what fails or dies leaves the rest alone, and nothing is run twice."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
import pytest

from fdbr import random, train

pytest.importorskip("cattrs", reason="sweeps read and write configurations with cattrs")


@attrs.frozen
class Optimizer:
    rate: float = 0.1


@attrs.frozen
class Config:
    width: int = 3
    optimizer: Optimizer = Optimizer()
    note: str | None = None


def run(config):
    if config.width < 0:
        raise ValueError("the width is negative")

    def step(state, batch):
        return state - config.optimizer.rate * state, {"loss": config.width * state**2}

    return train.fit(step, 1.0, train.Batches(np.arange(4.0), 2), epochs=2)


def swept(configs, folder=None, run=run, **options):
    with ThreadPoolExecutor(2) as executor:
        return list(train.sweep(run, configs, folder, executor=executor, **options))


def ends(reports):
    return {r.config: r for r in reports if r.state != "running"}


def test_every_report_of_every_run_is_streamed_in_order(tmp_path):
    configs = train.grid(Config(), {"optimizer.rate": [0.1, 0.5]}, width=[1, 2])
    reports = swept(configs, tmp_path)
    for config in configs:
        mine = [r for r in reports if r.config == config]
        assert [(r.state, r.iteration, r.epoch) for r in mine] == [
            ("running", 1, 0),
            ("running", 2, 1),
            ("running", 3, 1),
            ("running", 4, 2),
            ("finished", 4, 2),
        ]
        expected = [report.metrics["loss"] for report in run(config)]
        assert [r.metrics["loss"] for r in mine[:-1]] == expected


def test_a_sweep_without_a_folder_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert len(ends(swept([Config()]))) == 1


def test_a_run_that_raises_has_failed_and_the_others_go_on(tmp_path):
    found = ends(swept([Config(-1), Config(1)], tmp_path))
    assert found[Config(-1)].state == "failed"
    assert found[Config(-1)].error == "ValueError: the width is negative"
    assert found[Config(1)].state == "finished"
    failed = next(tmp_path.glob(f"{found[Config(-1)].run}/status.json"))
    assert "the width is negative" in failed.read_text()
    assert "Traceback" in failed.read_text()


def test_what_has_finished_is_not_run_again(tmp_path):
    calls = []

    def counted(config):
        calls.append(config.width)
        return run(config)

    swept([Config(1)], tmp_path, counted)
    found = ends(swept([Config(1), Config(2)], tmp_path, counted))
    assert calls == [1, 2]
    assert found[Config(1)].restored
    assert not found[Config(2)].restored
    assert found[Config(1)].metrics == {"loss": found[Config(2)].metrics["loss"] / 2}


def test_the_same_configuration_twice_is_two_runs(tmp_path):
    found = [r for r in swept([Config(), Config()], tmp_path) if r.state == "finished"]
    assert len({r.run for r in found}) == 2


def test_a_run_may_have_its_folder(tmp_path):
    def noting(config, folder):
        (folder / "note.txt").write_text(str(config.width))
        return run(config)

    (report,) = ends(swept([Config(5)], tmp_path, noting)).values()
    assert (tmp_path / report.run / "note.txt").read_text() == "5"


def test_every_says_which_reports_are_told_and_the_last_is_always(tmp_path):
    reports = swept([Config()], tmp_path, every=train.every(iterations=3))
    assert [r.iteration for r in reports] == [3, 4, 4]
    assert len(train.results(tmp_path)) == 2


def test_an_interrupted_run_that_resumes_has_each_iteration_once(tmp_path):
    def halted(config):
        for report in run(config):
            if report.iteration == 3:
                raise RuntimeError("halted")
            yield report

    def resumed(config):
        second = list(run(config))[1]

        def step(state, batch):
            return state - config.optimizer.rate * state, {"loss": config.width * state**2}

        return train.fit(
            step, second.state, train.Batches(np.arange(4.0), 2), epochs=2, resume=second
        )

    swept([Config()], tmp_path, halted)
    reports = swept([Config()], tmp_path, resumed)
    assert [r.iteration for r in reports] == [3, 4, 4]
    table = train.results(tmp_path)
    assert table.columns["iteration"] == (1, 2, 3, 4)
    expected = [report.metrics["loss"] for report in run(Config())]
    assert list(table.columns["loss"]) == expected


SCRIPT = """
import os, signal, sys
import numpy as np
from fdbr import train

def run(config, folder):
    if config["dies"] and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if config["always"]:
        os._exit(3)
    step = lambda state, batch: (state + batch.sum(), {"sum": state})
    return train.fit(step, 0.0, train.Batches(np.arange(4.0), 2), epochs=1)

if __name__ == "__main__":
    configs = [{"dies": True, "always": False}, {"dies": False, "always": True}]
    for report in train.sweep(run, configs, sys.argv[1], retries=1):
        if report.state != "running":
            print(configs.index(report.config), report.state, report.error, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_dies_is_tried_again_and_takes_no_other_with_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(tmp_path / "sweep")]
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    lines = sorted(done.stdout.splitlines())
    assert lines[0] == "0 finished None", done
    assert lines[1].startswith("1 failed ProcessDiedError: its process ended with code 3"), done


POOL = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np
from fdbr import train

def run(config, folder):
    with open(folder / "tries", "a") as file:
        file.write("x")
    if config["dies"] == "once" and len((folder / "tries").read_text()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if config["dies"] == "always":
        os._exit(3)
    if config["dies"] == "never":
        time.sleep(0.3)
    step = lambda state, batch: (state + batch.sum(), {"sum": state})
    return train.fit(step, 0.0, train.Batches(np.arange(4.0), 2), epochs=1)

def fail():
    raise OSError("no data here")

if __name__ == "__main__":
    dies = ["never", "once", "always", "never", "always", "never"]
    configs = [{"dies": how, "number": number} for number, how in enumerate(dies)]
    initializer = fail if sys.argv[2] == "initializer" else None
    with ProcessPoolExecutor(3, initializer=initializer) as executor:
        for report in train.sweep(run, configs, sys.argv[1], executor=executor):
            if report.state != "running":
                print(report.config["number"], report.state, report.error, flush=True)
    with ProcessPoolExecutor(2) as executor:
        for report in train.sweep(run, configs[:2], sys.argv[1], executor=executor):
            print("again", report.restored)
"""


def run_pool(tmp_path, how):
    script = tmp_path / "script.py"
    script.write_text(POOL)
    command = [sys.executable, str(script), str(tmp_path / "sweep"), how]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_a_worker_that_dies_in_a_pool_takes_no_other_run_with_it(tmp_path):
    done = run_pool(tmp_path, "runs")
    assert done.returncode == 0, done.stderr
    *lines, first, second = done.stdout.splitlines()
    found = {int(line.split()[0]): line.split(maxsplit=2)[1:] for line in lines}
    assert [found[number][0] for number in range(6)] == [
        *("finished", "finished", "failed", "finished", "failed", "finished")
    ]
    assert all("BrokenProcessPool" in found[number][1] for number in (2, 4))
    assert first == second == "again True"
    tries = {p.parent.name: p.read_text() for p in (tmp_path / "sweep").glob("*/tries")}
    configs = {p.parent.name: p.read_text() for p in (tmp_path / "sweep").glob("*/config.json")}
    assert [tries[name] for name in tries if "always" in configs[name]] == ["xx", "xx"]


def test_a_pool_in_which_no_run_can_begin_is_an_error_that_names_the_runs(tmp_path):
    done = run_pool(tmp_path, "initializer")
    assert "is broken again, before a run had begun" in done.stderr
    assert "{'dies': 'once', 'number': 1}" in done.stderr


class Breaking(ThreadPoolExecutor):
    """An executor of another kind, which breaks with its third call."""

    calls = 0

    def submit(self, *args):
        self.calls += 1
        if self.calls > 2:
            raise BrokenExecutor("a worker is gone")
        return super().submit(*args)


def test_a_broken_executor_that_cannot_be_replaced_loses_nothing(tmp_path):
    configs = [Config(width) for width in (1, 2, 3, 4)]
    found = []
    with (
        Breaking(2) as executor,
        pytest.raises(
            RuntimeError, match=r"Breaking is broken: a worker is gone.*width=3"
        ) as error,
    ):
        found.extend(train.sweep(run, configs, tmp_path, executor=executor))
    assert "width=2" not in str(error.value)
    assert [ends(found)[config].state for config in configs[:2]] == ["finished"] * 2
    found = ends(swept(configs, tmp_path))
    assert [found[config].state for config in configs] == ["finished"] * 4
    assert [found[config].restored for config in configs] == [True, True, False, False]


def test_a_function_that_no_other_process_can_import_is_refused():
    with pytest.raises(TypeError, match=r"fdbr\.train\.sweep: run must be a function at the top"):
        train.sweep(lambda config: run(config), [Config()])


def test_what_is_no_report_fails_the_run(tmp_path):
    (found,) = ends(swept([Config()], tmp_path, lambda config: [1])).values()
    assert "run must return reports" in found.error


@pytest.mark.parametrize(
    ("configs", "options", "words"),
    [
        (3, {}, "configs must be a list"),
        ("abc", {}, "configs must be a list"),
        ([Config()], {"workers": 0}, "workers"),
        ([Config()], {"retries": -1}, "retries"),
        ([Config()], {"every": 3}, "every must be"),
    ],
)
def test_arguments_that_do_not_fit_are_named(configs, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        train.sweep(run, configs, **options)


def test_a_configuration_that_cannot_be_written_down_is_refused():
    with pytest.raises(TypeError, match="a configuration must be made of numbers"):
        swept([{"rate": np.zeros(3)}])


class Counting:
    """A search that halves the width of what it is told."""

    def __init__(self):
        self.told = []
        self.width = 8

    def ask(self):
        if self.width < 2:
            return None
        self.width //= 2
        return Config(self.width), self.width

    def tell(self, token, metrics):
        self.told.append((token, metrics and metrics["loss"] / token))


def test_a_search_is_told_what_came_of_its_proposals(tmp_path):
    search = Counting()
    swept(search, tmp_path, workers=1)
    last = list(run(Config(1)))[-1].metrics["loss"]
    assert search.told == [(4, last), (2, last), (1, last)]


def test_optuna_proposes_and_is_told(tmp_path):
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def make(trial):
        return Config(trial.suggest_int("width", 1, 9))

    swept(train.optuna_search(study, make, 4, "loss"), tmp_path, workers=1)
    assert len(study.trials) == 4
    best = train.results(tmp_path).last().best("loss")
    assert study.best_value == best["loss"]
    assert study.best_params["width"] == best["config.width"]


# --- lists of configurations ---------------------------------------------------------


def test_a_grid_has_all_combinations_and_leaves_the_rest():
    base = Config(note="a")
    found = train.grid(base, {"optimizer.rate": [0.1, 0.2]}, width=[1, 2])
    assert [(c.optimizer.rate, c.width, c.note) for c in found] == [
        (0.1, 1, "a"),
        (0.1, 2, "a"),
        (0.2, 1, "a"),
        (0.2, 2, "a"),
    ]


def test_a_random_search_is_a_function_of_its_key():
    axes = {"optimizer.rate": train.sweeps.log_uniform(1e-4, 1e-1)}

    def draw(seed):
        return train.random_search(
            random.key(seed), Config(), 20, axes, width=train.sweeps.integers(1, 5)
        )

    assert draw(0) == draw(0) != draw(1)
    assert {c.width for c in draw(0)} == {1, 2, 3, 4}
    assert all(1e-4 <= c.optimizer.rate < 1e-1 for c in draw(0))
    assert {train.sweeps.choice("ab")(key) for key in random.split(random.key(0), 20)} == {"a", "b"}


def test_a_field_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="Config has no field 'rate'; it has width, optimizer"):
        train.grid(Config(), rate=[1])
    with pytest.raises(ValueError, match="Optimizer has no field 'speed'"):
        train.grid(Config(), {"optimizer.speed": [1]})
    with pytest.raises(TypeError, match="must be in a list"):
        train.grid(Config(), width=3)
    with pytest.raises(ValueError, match="no values of width"):
        train.grid(Config(), width=[])
    with pytest.raises(TypeError, match="must be drawn by a function"):
        train.random_search(random.key(0), Config(), 3, width=3)


# --- results -------------------------------------------------------------------------


def test_results_are_a_tidy_table_that_is_saved_and_drawn(tmp_path):
    configs = train.grid(Config(note="x"), width=[1, 2], optimizer=[Optimizer(0.1)])
    swept(configs, tmp_path / "sweep")
    table = train.results(tmp_path / "sweep")
    assert len(table) == 8
    assert table.varied() == ("config.width",)
    assert len(table.last()) == 2
    assert table.best("loss")["config.width"] == 1
    assert table.best("loss", "max")["config.width"] == 2
    assert set(next(iter(table.rows()))) >= {"run", "config.optimizer.rate", "iteration", "loss"}
    table.save(tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 9
    with pytest.raises(ValueError, match="there is no value of 'nothing'"):
        table.best("nothing")
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        table.save(tmp_path / "table.xls")
    pytest.importorskip("matplotlib", reason="pictures are drawn by matplotlib")
    table.plot(tmp_path / "loss.png", "loss")
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_results_are_read_back_from_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    swept([Config(1), Config(2, note="n")], tmp_path / "sweep")
    table = train.results(tmp_path / "sweep")
    table.save(tmp_path / "table.parquet")
    found = parquet.read_table(tmp_path / "table.parquet").to_pydict()
    assert {name: tuple(values) for name, values in found.items()} == dict(table.columns)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        train.results(tmp_path / "nothing")


# --- configurations ------------------------------------------------------------------


def test_the_command_line_goes_over_the_file_and_the_file_over_the_defaults(tmp_path):
    pytest.importorskip("tyro", reason="tyro is not installed")
    path = tmp_path / "config.toml"
    path.write_text('width = 20\nnote = "file"\n[optimizer]\nrate = 0.5\n')
    assert train.configure(Config, []) == Config()
    assert train.configure(Config, [], file=path) == Config(20, Optimizer(0.5), "file")
    found = train.configure(Config, ["--config", str(path), "--optimizer.rate", "0.25"])
    assert found == Config(20, Optimizer(0.25), "file")
    assert train.configure(Config, [f"--config={path}", "--width", "1"]).width == 1


def test_a_configuration_is_read_back_from_what_a_run_has_written(tmp_path):
    config = Config(7, Optimizer(0.3), "n")
    ((report),) = ends(swept([config], tmp_path)).values()
    assert train.load_config(tmp_path / report.run / "config.json", Config) == config
    assert '"commit"' in (tmp_path / report.run / "run.json").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("width = 'a'", "no Config: invalid value for type, expected int"),
        ("wide = 3", "extra fields found"),
        ("width = ", "cannot be read"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path, text, words):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        train.load_config(path, Config)
    assert str(path) in str(error.value)


def test_a_class_without_fields_is_refused():
    with pytest.raises(TypeError, match="kind must be an attrs class or a dataclass"):
        train.configure(int, [])
