"""Train a variational autoencoder on handwritten digits, and draw digits from it.

    python examples/vae.py              # the 8x8 digits that come with scikit-learn
    python examples/vae.py --data DIR   # the idx files of MNIST

Kingma & Welling, *Auto-encoding variational Bayes*, ICLR 2014.  ``reconstructed.png`` has digits
above what became of them, ``sampled.png`` digits of random codes.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, digits, image_grid, record, run_command

import fdbr
from fdbr import nn, ops, random, train
from fdbr.distributions import Bernoulli, Normal, kl_divergence


@fdbr.frozen
class VAE(nn.Layer):
    """An encoder to a normal distribution of codes, and a decoder to one of pixels."""

    encoder: nn.Sequential
    decoder: nn.Sequential

    @classmethod
    def init(cls, key: Any, pixels: int, units: int, codes: int) -> "VAE":
        """A model with fresh parameters."""
        keys = random.split(key, 4)
        return cls(
            nn.Sequential(
                nn.Linear.init(keys[0], pixels, units),
                ops.tanh,
                nn.Linear.init(keys[1], units, 2 * codes),
            ),
            nn.Sequential(
                nn.Linear.init(keys[2], codes, units),
                ops.tanh,
                nn.Linear.init(keys[3], units, pixels),
            ),
        )

    def __call__(self, x: Any) -> Normal:
        """The distribution of codes of images."""
        loc, log_scale = ops.unstack(ops.reshape(self.encoder(x), (len(x), 2, -1)), axis=1)
        return Normal(loc, ops.exp(log_scale))

    def decode(self, codes: Any) -> Bernoulli:
        """The distribution of pixels of codes."""
        return Bernoulli(logits=self.decoder(codes))


def loss(model: VAE, image: Any, key: Any) -> tuple[Any, dict[str, Any]]:
    """The negative evidence lower bound of an image, and its two parts."""
    posterior = model(image)
    pixels = model.decode(posterior.sample(key))
    # Grey is a mixture of black and white, so the expectation of the log probability.
    logs = image * pixels.log_p + (1 - image) * pixels.log_q
    distance = -ops.mean(ops.sum(logs, axis=1))
    divergence = ops.mean(ops.sum(kl_divergence(posterior, Normal()), axis=1))
    return distance + divergence, {"distance": distance, "divergence": divergence}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=60, size=100, rate=2e-3)
    made.add_argument("--data", type=Path, metavar="DIR", help="folder with MNIST's idx files")
    made.add_argument("--units", type=int, default=200)
    made.add_argument("--codes", type=int, default=8)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the bound on what was held out."""
    training, test = train.mnist(options.data) if options.data else digits()
    keys = random.split(random.key(options.seed), 4)
    batches = train.Batches(training["image"], options.batch_size, key=keys[0])
    model = VAE.init(keys[1], training["image"].shape[1], options.units, options.codes)
    optimizer = train.optim.adam(options.learning_rate)

    @fdbr.jit
    def step(state: Any, image: Any) -> Any:
        model, opt, key = state
        key, own = random.split(key)
        (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, image, own)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt, key), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        value, metrics = loss(state[0], test["image"], keys[3])
        return {"loss": value, **metrics}

    state = (model, optimizer.init(model), keys[2])
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    model = state[0]
    side = math.isqrt(training["image"].shape[1])
    shown = test["image"][:20]
    again = model.decode(model(shown).loc).p
    rows = [part for i in (0, 10) for part in (shown[i : i + 10], again[i : i + 10])]
    options.out.mkdir(parents=True, exist_ok=True)
    image_grid(np.concatenate(rows).reshape(-1, side, side), options.out / "reconstructed.png")
    codes = random.normal(keys[3], (100, options.codes), "float32")
    image_grid(model.decode(codes).p.reshape(-1, side, side), options.out / "sampled.png")
    return float(test_metrics(state)["loss"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the bound."""
    run_command(parser(), run, "test loss {:.2f}", arguments)


if __name__ == "__main__":
    main()
