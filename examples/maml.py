"""Learn where to begin, so that one gradient step on a new task goes far.

    python examples/maml.py

Finn, Abbeel & Levine, *Model-agnostic meta-learning for fast adaptation of deep networks*, ICML
2017: each task is a sine curve of its own amplitude and phase, of which ten points are seen.  A
gradient step is a pure function of the parameters, so the gradient passes through it, and all tasks
of a batch take theirs at once under `vmap`.  ``adapted.png`` shows a curve that nobody has seen,
and what one step and ten steps make of ten of its points.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train

POINTS = 10


def network(key: Any, width: int) -> nn.Sequential:
    """From a number to a number."""
    keys = random.split(key, 3)
    return nn.Sequential(
        nn.Linear.init(keys[0], 1, width),
        ops.tanh,
        nn.Linear.init(keys[1], width, width),
        ops.tanh,
        nn.Linear.init(keys[2], width, 1),
    )


def task(key: Any, points: int) -> dict[str, Any]:
    """A sine curve: points to learn from, and others to be judged by."""
    keys = random.split(key, 3)
    amplitude = random.uniform(keys[0], (), "float32", 0.1, 5.0)
    phase = random.uniform(keys[1], (), "float32", 0.0, np.pi)
    x = random.uniform(keys[2], (2 * points, 1), "float32", -5.0, 5.0)
    y = amplitude * ops.sin(x + phase)
    return {"x": x[:points], "y": y[:points], "x_test": x[points:], "y_test": y[points:]}


def error(model: Any, x: Any, y: Any) -> Any:
    """The mean squared error."""
    return ops.mean((model(x) - y) ** 2)


def adapted(model: Any, task: dict[str, Any], rate: float, steps: int) -> Any:
    """The model after some steps of gradient descent on a task."""
    descent = train.optim.sgd(rate)
    state = descent.init(model)
    for _ in range(steps):
        gradient = fdbr.grad(error)(model, task["x"], task["y"])
        updates, state = descent.update(gradient, state, model)
        model = train.optim.apply_updates(model, updates)
    return model


def after(model: Any, task: dict[str, Any], rate: float, steps: int) -> Any:
    """The error on a task's other points, after some steps on its own."""
    return error(adapted(model, task, rate, steps), task["x_test"], task["y_test"])


def draw(model: Any, task: dict[str, Any], rate: float, path: Path) -> None:
    """Draw a task, and what models make of it that have taken some steps."""
    x = np.linspace(-5, 5, 200, dtype=np.float32)[:, None]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for steps, style in ((0, ":"), (1, "--"), (10, "-")):
        axes.plot(x, adapted(model, task, rate, steps)(x), style, label=f"{steps} steps")
    axes.plot(task["x"], task["y"], "ko", label="what is seen")
    axes.legend()
    figure.savefig(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=15, size=25, rate=1e-3)
    made.add_argument("--tasks", type=int, default=5000, help="that an epoch has")
    made.add_argument("--inner-rate", type=float, default=0.02, help="of the steps on tasks")
    made.add_argument("--width", type=int, default=40)
    return made


def run(options: argparse.Namespace) -> float:
    """Learn as the command line says; return the error on new tasks after one step."""
    keys = random.split(random.key(options.seed), 4)
    numbers = np.arange(options.tasks)
    batches = train.Batches(numbers, options.batch_size, key=keys[0], drop_last=True)
    model = network(keys[1], options.width)
    optimizer = train.optim.adam(options.learning_rate)
    rate = options.inner_rate

    def tasks(key: Any, numbers: Any) -> dict[str, Any]:
        return fdbr.vmap(lambda i: task(random.fold_in(key, i), POINTS))(numbers)

    def meta_loss(model: Any, batch: dict[str, Any], steps: int = 1) -> Any:
        return ops.mean(fdbr.vmap(lambda one: after(model, one, rate, steps))(batch))

    test = tasks(keys[2], np.arange(200))

    @fdbr.jit
    def test_metrics(state: Any) -> dict[str, Any]:
        errors = {steps: meta_loss(state[0], test, steps) for steps in (0, 1)}
        return {"before": errors[0], "loss": errors[1]}

    @fdbr.jit
    def improved(state: Any, batch: dict[str, Any]) -> Any:
        model, opt = state
        value, gradient = fdbr.value_and_grad(meta_loss)(model, batch)
        updates, opt = optimizer.update(gradient, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    def step(state: Any, numbers: Any) -> Any:
        return improved(state, tasks(keys[3], numbers))

    state = (model, optimizer.init(model))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    options.out.mkdir(parents=True, exist_ok=True)
    draw(state[0], task(random.fold_in(keys[2], 3), POINTS), rate, options.out / "adapted.png")
    return float(test_metrics(state)["loss"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the error after a step."""
    run_command(parser(), run, "error on new tasks after one step {:.3f}", arguments)


if __name__ == "__main__":
    main()
