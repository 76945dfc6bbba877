"""Train a generator of handwritten digits against a discriminator, on several processes.

    mpiexec -n 2 python examples/dcgan_distributed.py

The two models are those of ``dcgan.py``.  Each rank has its share of the real digits, and codes of
its own, drawn by a key with its rank: the state's key stays the same on all ranks.  The gradients
of both models are averaged, within a jitted step, and batch normalisation takes the statistics of
all ranks.
"""

import argparse
import math
from typing import Any

from dcgan import discriminator, generator, parser
from recording import digits, image_grid, record, run_command

import fdbr
from fdbr import distributed, ops, random, train


def judging(judges: Any, real: Any, made: Any) -> Any:
    """The discriminator's loss: the softplus of what it gets wrong."""
    of_real, judges = judges.train(real)
    of_made, judges = judges.train(made)
    return ops.mean(ops.softplus(-of_real)) + ops.mean(ops.softplus(of_made)), judges


def making(makes: Any, judges: Any, codes: Any) -> Any:
    """The generator's: the softplus of what the discriminator gets right."""
    made, makes = makes.train(codes)
    return ops.mean(ops.softplus(-judges.train(made)[0])), makes


def run(options: argparse.Namespace) -> float:
    """Train as the command line says, and draw digits; return the generator's last loss."""
    comm = distributed.world()
    training, _ = train.mnist(options.data) if options.data else digits()
    side = math.isqrt(training["image"].shape[1])
    images = training["image"].reshape(-1, 1, side, side)
    keys = random.split(random.key(options.seed), 5)
    batches = train.Batches(images, options.batch_size, key=keys[0], drop_last=True)
    makes = distributed.sync_batch_norm(generator(keys[1], options.codes, side), comm)
    judges = distributed.sync_batch_norm(discriminator(keys[2], side), comm)
    optimizer = train.optim.chain(
        distributed.average_gradients(comm), train.optim.adam(options.learning_rate, b1=0.5)
    )

    @fdbr.jit
    def step(state: Any, real: Any) -> Any:
        makes, judges, makes_opt, judges_opt, key = state
        key, shared = random.split(key)
        own = distributed.fold_in_rank(shared, comm)
        codes = random.normal(own, (len(real), options.codes), "float32")
        made, _ = makes.train(codes)
        judge = fdbr.value_and_grad(judging, has_aux=True)
        (judged, judges), grads = judge(judges, real, made)
        updates, judges_opt = optimizer.update(grads, judges_opt, judges, weight=len(real))
        judges = train.optim.apply_updates(judges, updates)
        make = fdbr.value_and_grad(making, has_aux=True)
        (fooled, makes), grads = make(makes, judges, codes)
        updates, makes_opt = optimizer.update(grads, makes_opt, makes, weight=len(real))
        makes = train.optim.apply_updates(makes, updates)
        metrics = {"discriminator": judged, "generator": fooled}
        return (makes, judges, makes_opt, judges_opt, key), metrics

    state = (makes, judges, optimizer.init(makes), optimizer.init(judges), keys[3])
    state = record(options.out, step, state, distributed.share(batches, comm), options.epochs)
    makes, judges, *_ = state
    codes = random.normal(keys[4], (100, options.codes), "float32")
    if comm.rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)
        image_grid(makes(codes)[:, 0], options.out / "sampled.png")
    return float(making(makes, judges, codes)[0])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the generator's loss."""
    run_command(parser(), run, "the generator's loss {:.3f}", arguments)


if __name__ == "__main__":
    main()
