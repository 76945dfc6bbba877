"""Train ResNet-50 on a folder of images, on several processes that send gradients in float16.

    mpiexec -n 2 python examples/resnet50_distributed.py --data DIR
    mpiexec -n 2 python examples/resnet50_distributed.py       # small images that are made up

``DIR/train`` and ``DIR/val`` have a folder of images for each class, as ImageNet usually lies on
disk.  It is the experiment of Chainer's paper (Tokui et al., KDD 2019, section 6.4): 32 images a
rank, momentum SGD with a rate in proportion to the images of a step, which rises over five epochs
and falls to a tenth three times (Goyal et al., 2017), and half as many bytes on the wire.
Normalisation is by the images of a rank, there as here, and its running statistics are averaged.
Gradients are reduced while backward still runs, which Chainer's were not.

A run that was stopped, by Ctrl-C on any rank too, goes on with ``--resume``.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from recording import command_line, record, run_command

import fdbr
from fdbr import distributed, nn, ops, random, train

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the channels of ImageNet's images, from 0 to 1."""


def made_up(folder: Path, classes: int = 4, each: int = 12, side: int = 40) -> Path:
    """Write images of stripes, whose direction is their class; the folder."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side]
    for part, count in (("train", each), ("val", each // 3)):
        for number in range(classes):
            place = folder / part / f"direction{number}"
            place.mkdir(parents=True, exist_ok=True)
            angle = np.pi * number / classes
            for i in range(count):
                phase = 6 * generator.random()
                wave = np.sin((np.cos(angle) * rows + np.sin(angle) * columns) * 0.8 + phase)
                noise = generator.normal(0, 0.3, (side, side, 3))
                pixels = np.clip(128 + 60 * (wave[..., None] + noise), 0, 255)
                Image.fromarray(pixels.astype("uint8")).save(place / f"{i}.png")
    return folder


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=90, size=32, rate=0.1)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with train and val")
    made.add_argument("--side", type=int, default=224, help="rows and columns of an image")
    made.add_argument("--width", type=int, default=64, help="channels of the first convolution")
    made.add_argument("--wire", choices=["float16", "bfloat16", "none"], default="float16")
    made.add_argument("--workers", type=int, help="threads of a rank that read images")
    made.add_argument("--resume", action="store_true", help="go on with the run in --out")
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the accuracy on what was not trained with."""
    comm = distributed.world()
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            own = made_up(Path(folder))  # each rank has its own, all of which are the same
        return trained(options, options.data or own, comm)


def trained(options: argparse.Namespace, folder: Path, comm: Any) -> float:
    """Train with the images of a folder."""
    model_key, order_key, crop_key = random.split(random.key(options.seed), 3)
    images, held_out = train.image_folder(folder / "train"), train.image_folder(folder / "val")

    def cropped(key: Any, example: Any) -> Any:
        first, second = random.split(key)
        image = train.augment.random_resized_crop(first, example["image"], options.side)
        image = train.augment.random_flip(second, train.augment.to_float(image))
        return {**example, "image": train.augment.normalize(image, MEAN, STD)}

    def centered(example: Any) -> Any:
        image = train.augment.resize(example["image"], options.side * 8 // 7)
        image = train.augment.to_float(train.augment.center_crop(image, options.side))
        return {**example, "image": train.augment.normalize(image, MEAN, STD)}

    def read(dataset: Any, key: Any = None) -> Any:
        batches = train.Batches(
            dataset, options.batch_size * comm.size, key=key, drop_last=key is not None
        )
        return train.prefetch(distributed.share(batches, comm), options.workers)

    training = read(train.map_examples(cropped, images, crop_key), order_key)
    test = read(train.map_examples(centered, held_out))
    epoch = len(training)
    if not epoch:
        raise ValueError(f"{len(images)} images are fewer than a step of all ranks takes")
    rate = options.learning_rate * options.batch_size * comm.size / 256
    schedule = train.optim.join_schedules(
        [
            train.optim.linear_schedule(options.learning_rate / 8, rate, 5 * epoch),
            train.optim.piecewise_constant_schedule(
                rate, {(end - 5) * epoch: 0.1 for end in (30, 60, 80)}
            ),
        ],
        [5 * epoch],
    )
    optimizer = train.optim.chain(
        train.optim.add_decayed_weights(1e-4), train.optim.momentum_sgd(schedule)
    )

    def loss(model: Any, batch: Any) -> Any:
        logits, successor = model.train(batch["image"])
        value = ops.softmax_cross_entropy(logits, batch["label"])
        return value, (successor, {"accuracy": ops.accuracy(logits, batch["label"])})

    wire = None if options.wire == "none" else options.wire
    gradient = fdbr.jit(distributed.value_and_grad(loss, comm, has_aux=True, wire=wire))

    def step(state: Any, batch: Any) -> Any:
        model, opt = state
        (value, (successor, metrics)), grads = gradient(model, batch)
        updates, opt = optimizer.update(grads, opt, model)
        model = train.optim.apply_updates(successor, updates)
        return (distributed.all_reduce_buffers(model, comm), opt), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        """Means over the images of all ranks, each of which has its share of a batch."""
        sums = np.zeros(3)
        for batch in test.epoch(0):
            count = len(batch["label"])
            if count:
                logits = state[0](batch["image"])
                value = ops.softmax_cross_entropy(logits, batch["label"])
                accuracy = ops.accuracy(logits, batch["label"])
                sums += count * np.array([value, accuracy, 1.0])
        value, accuracy, count = distributed.all_reduce(sums, comm)
        return {"loss": value / count, "accuracy": accuracy / count}

    model = nn.models.ResNet50.init(model_key, len(images.classes), width=options.width)
    state = distributed.broadcast((model, optimizer.init(model)), comm)
    resume = options.resume
    state = record(options.out, step, state, training, options.epochs, test_metrics, resume=resume)
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the test accuracy."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
