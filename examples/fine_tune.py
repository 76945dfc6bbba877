"""Fine-tune a segmenter for new shapes: its encoder is frozen, its decoder is trained.

    python examples/segment_shapes.py --out result
    python examples/fine_tune.py --start result/model --out tuned

The model that ``segment_shapes.py`` trained on disks, squares and triangles learns rings and
crosses from 60 pictures.  `fdbr.tree.partition` splits the model in the leaves that are trained and
those that are frozen; gradients are taken, and the optimizer's state is made, of the former alone.
Without ``--start`` the frozen encoder has random weights.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command
from segment_shapes import draw_predictions, measures, model_of, pictures

import fdbr
from fdbr import random, train, tree

NAMES = ("background", "ring", "cross")
FROZEN = ("conv1", "conv2", "conv3", "conv4")
"""How the fields of the encoder begin, those of its normalisations included."""


def split(model: Any) -> tuple[Any, Any]:
    """Split a model in two of its own shape: the trained leaves and the frozen ones."""
    parameters = set(tree.paths(tree.trainable(model)))  # running statistics are none
    trained = iter([p in parameters and not p.startswith(FROZEN) for p in tree.paths(model)])
    return tree.partition(model, lambda leaf: next(trained))


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the mean overlap on test pictures."""
    draw = np.random.default_rng(options.seed + 1)
    training, test = pictures(draw, options.pictures, NAMES), pictures(draw, 50, NAMES)
    start_key, model_key, order_key = random.split(random.key(options.seed), 3)
    batches = train.Batches(training, options.batch_size, key=order_key)
    model = model_of(model_key, len(NAMES), options.width)
    if options.start is not None:
        # The encoder and the decoder are those of before, the last layer is new.
        before = train.load(options.start, like=model_of(start_key, 4, options.width))
        model = tree.replace(before, conv_classifier=model.conv_classifier)
    trained, frozen = split(model)
    optimizer = train.optim.adam(options.learning_rate)

    @fdbr.jit
    def step(state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        trained, rest, opt = state

        def loss(trained: Any) -> tuple[Any, Any]:
            model = tree.combine(trained, rest)
            losses, successor = model.losses(batch["image"], batch["label_map"])
            return losses["out"], successor

        # The successor has new running statistics; what is trained replaces its leaves.
        (value, rest), grads = fdbr.value_and_grad(loss, has_aux=True)(trained)
        updates, opt = optimizer.update(grads, opt, trained)
        return (train.optim.apply_updates(trained, updates), rest, opt), {"loss": value}

    state = trained, frozen, optimizer.init(trained)
    state = record(options.out, step, state, batches, options.epochs)
    model = tree.combine(state[0], state[1])
    train.save(options.out / "model", model)
    draw_predictions(model, test, NAMES, options.out)
    return float(measures(model, test)["miou"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the mean overlap."""
    made = command_line(__doc__ or "", epochs=20, size=10, rate=3e-3)
    made.add_argument("--start", type=Path, metavar="FILE", help="the model to begin with")
    made.add_argument("--pictures", type=int, default=60, help="how many to train on")
    made.add_argument("--width", type=int, default=16, help="the number of channels")
    run_command(made, run, "test mIoU {:.4f}", arguments)


if __name__ == "__main__":
    main()
