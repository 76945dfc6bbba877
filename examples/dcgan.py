"""Train a generator of handwritten digits against a discriminator.

    python examples/dcgan.py              # the 8x8 digits that come with scikit-learn
    python examples/dcgan.py --data DIR   # the idx files of MNIST

Radford, Metz & Chintala, *Unsupervised representation learning with deep convolutional generative
adversarial networks*, ICLR 2016.  Two models and two optimizers are one state: the step takes it
and returns the next.  ``sampled.png`` has digits of random codes.
"""

import argparse
import math
from pathlib import Path
from typing import Any

from recording import command_line, digits, image_grid, record, run_command

import fdbr
from fdbr import nn, ops, random, train


def generator(key: Any, codes: int, side: int) -> nn.Sequential:
    """From codes to images of values between 0 and 1."""
    keys = random.split(key, 6)
    low = side // 4
    return nn.Sequential(
        nn.Linear.init(keys[0], codes, 64 * low * low),
        lambda x: ops.reshape(x, (-1, 64, low, low)),
        nn.BatchNorm.init(keys[1], 64),
        ops.relu,
        nn.ConvTranspose.init(keys[2], 64, 32, 4, stride=2, padding=1),
        nn.BatchNorm.init(keys[3], 32),
        ops.relu,
        nn.ConvTranspose.init(keys[4], 32, 1, 4, stride=2, padding=1),
        ops.sigmoid,
    )


def discriminator(key: Any, side: int) -> nn.Sequential:
    """From images to a logit of being real."""
    keys = random.split(key, 4)
    low = side // 4
    return nn.Sequential(
        nn.Conv.init(keys[0], 1, 32, 4, stride=2, padding=1),
        ops.leaky_relu,
        nn.Conv.init(keys[1], 32, 64, 4, stride=2, padding=1),
        nn.BatchNorm.init(keys[2], 64),
        ops.leaky_relu,
        nn.Flatten(),
        nn.Linear.init(keys[3], 64 * low * low, 1),
    )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=40, size=64, rate=1e-3)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's idx files")
    made.add_argument("--codes", type=int, default=32)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says, and draw digits; return the generator's last loss."""
    training, _ = train.mnist(options.data) if options.data else digits()
    side = math.isqrt(training["image"].shape[1])
    images = training["image"].reshape(-1, 1, side, side)
    keys = random.split(random.key(options.seed), 5)
    batches = train.Batches(images, options.batch_size, key=keys[0], drop_last=True)
    makes, judges = generator(keys[1], options.codes, side), discriminator(keys[2], side)
    optimizer = train.optim.adam(options.learning_rate, b1=0.5)

    def judging(judges: Any, real: Any, made: Any) -> Any:
        """The discriminator's loss: the softplus of what it gets wrong."""
        of_real, judges = judges.train(real)
        of_made, judges = judges.train(made)
        return ops.mean(ops.softplus(-of_real)) + ops.mean(ops.softplus(of_made)), judges

    def making(makes: Any, judges: Any, codes: Any) -> Any:
        """The generator's: the softplus of what the discriminator gets right."""
        made, makes = makes.train(codes)
        return ops.mean(ops.softplus(-judges.train(made)[0])), makes

    @fdbr.jit
    def step(state: Any, real: Any) -> Any:
        makes, judges, makes_opt, judges_opt, key = state
        key, own = random.split(key)
        codes = random.normal(own, (len(real), options.codes), "float32")
        made, _ = makes.train(codes)
        judge = fdbr.value_and_grad(judging, has_aux=True)
        (judged, judges), grads = judge(judges, real, made)
        updates, judges_opt = optimizer.update(grads, judges_opt, judges)
        judges = train.optim.apply_updates(judges, updates)
        make = fdbr.value_and_grad(making, has_aux=True)
        (fooled, makes), grads = make(makes, judges, codes)
        updates, makes_opt = optimizer.update(grads, makes_opt, makes)
        makes = train.optim.apply_updates(makes, updates)
        metrics = {"discriminator": judged, "generator": fooled}
        return (makes, judges, makes_opt, judges_opt, key), metrics

    state = (makes, judges, optimizer.init(makes), optimizer.init(judges), keys[3])
    state = record(options.out, step, state, batches, options.epochs)
    codes = random.normal(keys[4], (100, options.codes), "float32")
    sampled = state[0](codes)[:, 0]
    options.out.mkdir(parents=True, exist_ok=True)
    image_grid(sampled, options.out / "sampled.png")
    return float(making(state[0], state[1], codes)[0])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the generator's loss."""
    run_command(parser(), run, "the generator's loss {:.3f}", arguments)


if __name__ == "__main__":
    main()
