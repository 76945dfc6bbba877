"""Values of today's random streams, initial weights, orders and files, recorded in full.

Other tests hold laws (distributions, shapes, one key gives the same again); these hold the numbers,
so that a program with a key computes tomorrow what it computed before.  Steps of optimizers have
records of their own, in tests/train/reference.
``PYTHONPATH=.:tests python -m tests.project.test_golden_values`` records the values anew, for a
change that is made on purpose.
"""

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from distributions.families import FAMILIES
from nn.layer_cases import CASES
from nn.models.small_models import IMAGES, TEXTS

import fdbr
from fdbr import distributions, nn, ops, random, train, tree

RECORDED = Path(__file__).with_name("golden_values.json")
SNAPSHOT = Path(__file__).parents[1] / "train" / "reference" / "snapshot.safetensors"
EXAMPLES = Path(__file__).parents[1] / "train" / "reference" / "examples.fdbr"
KEY = random.key(7)


def numbers(values: Any) -> list[Any]:
    """The numbers themselves, in full precision."""
    return np.ravel(np.asarray(values)).tolist()


def fingerprints(values: Any) -> list[float]:
    """For each array of a tree a sum with weights, which another order or another value changes."""
    arrays = [np.ravel(np.asarray(leaf, np.float64)) for leaf in tree.leaves(values)]
    return [float(array @ np.cos(np.arange(array.size))) for array in arrays]


# --- what is recorded: in each group, names and functions that compute the values --------

Group = dict[str, Callable[[], list[Any]]]
LOGITS = np.array([0.5, 1.0, 0.0])
SHAPED = ("bits", "cauchy", "exponential", "gumbel", "laplace", "logistic", "normal", "uniform")
DRAWS: dict[str, Callable[..., Any]] = {
    **{name: getattr(random, name) for name in (*SHAPED, "rademacher")},
    "bernoulli": lambda key, shape, **o: random.bernoulli(key, 0.3, shape, **o),
    "beta": lambda key, shape, **o: random.beta(key, 0.7, 2.0, shape, **o),
    "binomial": lambda key, shape, **o: random.binomial(key, 20, 0.3, shape, **o),
    "binomial of many": lambda key, shape, **o: random.binomial(key, 2000, 0.3, shape, **o),
    "categorical": lambda key, shape, **o: random.categorical(key, LOGITS, -1, shape, **o),
    "chisquare": lambda key, shape, **o: random.chisquare(key, 3.0, shape, **o),
    "choice": lambda key, shape, **o: random.choice(key, 50, shape, **o),
    "choice by chances": lambda key, s, **o: random.choice(key, 3, s, True, [0.5, 0.2, 0.3], **o),
    "dirichlet": lambda key, shape, **o: random.dirichlet(key, np.array([0.5, 2.0]), shape, **o),
    "gamma": lambda key, shape, **o: random.gamma(key, 2.5, shape, **o),
    "gamma below one": lambda key, shape, **o: random.gamma(key, 0.25, shape, **o),
    "geometric": lambda key, shape, **o: random.geometric(key, 0.2, shape, **o),
    "loggamma": lambda key, shape, **o: random.loggamma(key, 0.25, shape, **o),
    "multivariate_normal": lambda key, shape, **o: random.multivariate_normal(
        key, np.zeros(2), np.array([[1.0, 0.5], [0.5, 2.0]]), shape, **o
    ),
    "pareto": lambda key, shape, **o: random.pareto(key, 2.0, shape, **o),
    "poisson": lambda key, shape, **o: random.poisson(key, 4.0, shape, **o),
    "poisson of many": lambda key, shape, **o: random.poisson(key, 400.0, shape, **o),
    "randint": lambda key, shape, **o: random.randint(key, shape, -5, 1000, **o),
    "t": lambda key, shape, **o: random.t(key, 3.0, shape, **o),
    "truncated_normal": lambda key, shape, **o: random.truncated_normal(key, -1.0, 2.0, shape, **o),
}
WHOLE = ("bits", "bernoulli", "categorical", "choice", "choice by chances")  # have no dtype
WHOLE += ("binomial", "binomial of many", "geometric", "poisson", "poisson of many", "rademacher")
LARGE = 40_001  # several blocks of the streams, and kernels in place of NumPy


def of_random() -> Group:
    """Keys, and every draw: the first three, and the last two of many."""
    group: Group = {
        "key": lambda: numbers([random.key(0), random.key(1), random.key(2**64 - 1)]),
        "split": lambda: numbers(random.split(KEY, 3)),
        "fold_in": lambda: numbers([random.fold_in(KEY, 0), random.fold_in(KEY, 2**40)]),
        "permutation": lambda: numbers(random.permutation(KEY, 12)),
        "choice without replacement": lambda: numbers(random.choice(KEY, 50, (5,), replace=False)),
    }
    for name, draw in DRAWS.items():
        group[name] = lambda draw=draw: numbers(draw(KEY, (3,)))
        group[f"{name}, the last"] = lambda draw=draw: numbers(draw(KEY, (LARGE,))[-2:])
        if name not in (*WHOLE, "randint"):
            group[f"{name} in single"] = lambda d=draw: numbers(d(KEY, (3,), dtype="float32"))
    return group


def of_distributions() -> Group:
    """Samples of every distribution."""
    chances = np.array([0.5, 0.25, 0.25])
    normal = distributions.Normal(np.arange(2.0), 0.5)
    vectors = {
        "Categorical": distributions.Categorical(chances),
        "Dirichlet": distributions.Dirichlet(4 * chances),
        "Independent": distributions.Independent(normal, 1),
        "MultivariateNormal": distributions.MultivariateNormal(
            np.arange(2.0), scale_tril=np.array([[1.0, 0.0], [0.5, 2.0]])
        ),
        "OneHotCategorical": distributions.OneHotCategorical(chances),
    }
    made = {name: family.make(*family.parameters[0]) for name, family in FAMILIES.items()}
    return {
        name: lambda made=made: numbers(made.sample(KEY, (2,)))
        for name, made in {**made, **vectors}.items()
    }


def of_initializers() -> Group:
    """Initial values of the shape of a convolution, or of the one that an initializer asks for."""
    initializers = nn.initializers
    given: dict[str, tuple[Any, ...]] = {
        "calculate_gain": (),
        "constant": (2.0,),
        "generate_array": (),
        "sparse": (0.5,),
        "variance_scaling": (2.0, "fan_avg", "uniform"),
    }
    shapes = {"identity": (3, 3), "eye": (3, 3), "sparse": (4, 3)}
    shapes["downsampling_conv_filter"] = shapes["upsampling_deconv_filter"] = (2, 2, 4, 4)
    group: Group = {}
    for name in dir(initializers):
        if name.islower() and name not in ("calculate_gain", "generate_array", "nan"):
            initializer = getattr(initializers, name)(*given.get(name, ()))
            shape = shapes.get(name, (5, 4, 3, 3))
            group[name] = lambda f=initializer, s=shape: fingerprints(f(KEY, s, "float64"))
    return group


def of_layers() -> Group:
    """Initial weights of every layer, in the order of its leaves; outputs of those that draw."""
    group: Group = {}
    for case in CASES:
        group[case.name] = lambda case=case: fingerprints(case.make("float32"))
        if case.key:
            group[f"{case.name} trained"] = lambda case=case: fingerprints(
                case.make("float32").train(*case.inputs("float32"), key=KEY)[0]
            )
    return {name: values for name, values in group.items() if values()}


def of_models() -> Group:
    """Initial weights of small models: one sum for all, in the order of their paths."""

    def made(name: str) -> Any:
        cls = getattr(nn.models, name.split()[0])
        return (
            cls.init(KEY, **TEXTS[name]) if name in TEXTS else cls.init(KEY, 5, **IMAGES[name][1])
        )

    def sums(name: str) -> list[Any]:
        leaves = fingerprints(made(name))
        return [len(leaves), float(np.sum(leaves * np.cos(np.arange(len(leaves)))))]

    return {name: lambda name=name: sums(name) for name in (*IMAGES, *TEXTS)}


def of_augmentation() -> Group:
    """Random changes of an image."""
    image = np.linspace(0.0, 1.0, 3 * 9 * 8).reshape(3, 9, 8)
    augment = train.augment
    return {
        "color_jitter": lambda: fingerprints(augment.color_jitter(KEY, image, 0.4, 0.4, 0.4, 0.1)),
        "random_crop": lambda: fingerprints(augment.random_crop(KEY, image, (6, 5), 1)),
        "random_erasing": lambda: fingerprints(augment.random_erasing(KEY, image, 1.0)),
        "random_flip": lambda: [fingerprints(augment.random_flip(k, image))[0] for k in KEYS],
        "random_resized_crop": lambda: fingerprints(
            augment.random_resized_crop(KEY, image, (5, 5))
        ),
        "random_rotation": lambda: fingerprints(augment.random_rotation(KEY, image, 30.0)),
    }


KEYS = tuple(random.split(KEY, 4))


def of_optimizers() -> Group:
    """Three steps of those that draw noise."""
    optim = train.optim

    def steps(optimizer: Any) -> list[Any]:
        params = {"w": np.array([1.0, -2.0])}
        state = optimizer.init(params)
        for _ in range(3):
            updates, state = optimizer.update(params, state, params)
            params = optim.apply_updates(params, updates)
        return numbers(params["w"])

    return {
        "add_noise": lambda: steps(optim.chain(optim.add_noise(0.1, 0.5, KEY), optim.sgd(0.1))),
        "noisy_sgd": lambda: steps(optim.noisy_sgd(0.1, key=KEY)),
    }


def of_data() -> Group:
    """Which examples are in which batch, and which configurations a search draws."""
    labels = [0, 0, 0, 1, 1, 2, 2, 2, 2, 1]
    lengths = [3, 9, 1, 7, 5, 5, 2, 8, 4, 6]

    def batches(sampler: Any = None, **options: Any) -> Any:
        return train.Batches(np.arange(10), 4, KEY, sampler=sampler, **options)

    def order(batches: Any) -> list[Any]:
        return [batch.tolist() for epoch in (0, 1) for batch in batches.epoch(epoch)]

    def parts(datasets: Any) -> list[Any]:
        return [[int(dataset[i]) for i in range(len(dataset))] for dataset in datasets]

    def searched() -> list[Any]:
        given = {
            "rate": train.sweeps.log_uniform(1e-4, 1e-1),
            "width": train.sweeps.choice([50, 100, 200]),
            "depth": train.sweeps.integers(1, 9),
            "dropout": train.sweeps.uniform(0.0, 0.5),
        }
        drawn = train.random_search(random.key(0), Config(), 2, **given)
        return [value for config in drawn for value in attrs.astuple(config)]

    return {
        "Batches": lambda: order(batches()),
        "Batches that drop the last": lambda: order(batches(drop_last=True)),
        "Batches of two ranks": lambda: [order(batches().part(i, 2)) for i in range(2)],
        "BucketSampler": lambda: order(batches(train.BucketSampler(lengths, 2))),
        "StratifiedSampler": lambda: order(batches(train.StratifiedSampler(labels))),
        "WeightedSampler": lambda: order(batches(train.WeightedSampler(np.arange(10.0)))),
        "Stream": lambda: order(train.Stream(range(10), 4, window=5, key=KEY)),
        "Stream of the second rank": lambda: order(train.Stream(range(10), 4, shard=(1, 2))),
        "folds": lambda: [parts(pair) for pair in train.folds(np.arange(10), 3, KEY)],
        "folds by label": lambda: [parts(x) for x in train.folds(np.arange(10), 3, KEY, labels)],
        "split": lambda: parts(train.split(np.arange(10), [0.5, 0.5], KEY)),
        "split by label": lambda: parts(train.split(np.arange(10), [0.5, 0.5], KEY, labels)),
        "split_n": lambda: parts(train.split_n(np.arange(10), 3, KEY)),
        "random_search": searched,
    }


@attrs.frozen
class Config:
    """What a search draws."""

    rate: float = 0.1
    width: int = 10
    depth: int = 1
    dropout: float = 0.0


# --- files --------------------------------------------------------------------------


def everything() -> dict[str, Any]:
    """A tree with all that a file of `train.save` may hold."""
    return {
        "layers": nn.Sequential(nn.Conv2d.init(KEY, 1, 2, 3), ops.tanh, nn.BatchNorm.init(KEY, 2)),
        "float16": np.array([0.5, -2.0], "float16"),
        "complex": np.array([1 + 2j]),
        "integers": np.arange(3, dtype="int8"),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 2)),
        "scalars": [1, 2.5, True, None, "text"],
        "key": KEY,
    }


def of_files() -> Group:
    """What is written for the same values, by its checksum."""

    def written(write: Callable[[Path], Any]) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            write(path)
            return [hashlib.sha256(path.read_bytes()).hexdigest()]

    return {
        "save": lambda: written(lambda path: train.save(path, everything())),
        "write_examples": lambda: written(lambda path: train.write_examples(path, EXAMPLE_ROWS)),
    }


EXAMPLE_ROWS = [{"x": np.arange(3.0), "label": 1}, {"x": np.ones(3), "label": 0}]


def run(folder: Path, iterations: int, resume: Any = None) -> Any:
    """Train a little, with all that a snapshot keeps of stages; the last report."""
    data = {"x": np.linspace(-1.0, 1.0, 20).reshape(10, 2), "y": np.arange(10) % 3}
    optimizer = train.optim.adam(lambda count: 0.1 * 0.9**count)

    def step(state: Any, batch: Any) -> Any:
        model, opt = state

        def loss(model: Any) -> Any:
            return ops.softmax_cross_entropy(model(batch["x"]), batch["y"])

        value, gradient = fdbr.value_and_grad(loss)(model)
        updates, opt = optimizer.update(gradient, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    model = nn.Linear.init(random.key(0), 2, 3, dtype="float64")
    state = model, optimizer.init(model)
    if resume is not None:
        resume = train.resume(resume, like=state)
    reports = train.fit(
        step,
        state,
        train.Batches(data, 4, key=random.key(1)),
        iterations=iterations,
        resume=resume,
    )
    stopping = train.until(train.early_stopping("loss", patience=99))
    stages = (train.average(), stopping, train.snapshot(folder))
    return list(train.pipe(reports, *stages))[-1]


def record_files() -> None:
    """Write the files that later versions must read."""
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), 5)
        newest = train.snapshots(folder)[-1].path
        shutil.copyfile(newest, SNAPSHOT)
    EXAMPLES.unlink(missing_ok=True)
    train.write_examples(EXAMPLES, EXAMPLE_ROWS)


def test_a_run_continues_from_a_snapshot_of_before(tmp_path):
    whole = run(tmp_path / "whole", 8)
    resumed = run(tmp_path / "resumed", 8, resume=SNAPSHOT)
    assert (resumed.iteration, resumed.epoch) == (8, whole.epoch)
    assert tree.structure(resumed.state) == tree.structure(whole.state)
    for value, expected in zip(tree.leaves(resumed.state), tree.leaves(whole.state), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12)
    assert math.isclose(resumed.metrics["loss"], whole.metrics["loss"], rel_tol=1e-12)


def test_examples_of_before_are_read():
    found = train.read_examples(EXAMPLES)
    assert len(found) == len(EXAMPLE_ROWS)
    for i, expected in enumerate(EXAMPLE_ROWS):
        assert found[i]["label"] == expected["label"]
        np.testing.assert_array_equal(found[i]["x"], expected["x"])


# --- the comparison -----------------------------------------------------------------

GROUPS: dict[str, Callable[[], Group]] = {
    "random": of_random,
    "distributions": of_distributions,
    "initializers": of_initializers,
    "layers": of_layers,
    "models": of_models,
    "augmentation": of_augmentation,
    "optimizers": of_optimizers,
    "data": of_data,
    "files": of_files,
}


def _differences(found: Any, recorded: Any, rtol: float) -> Iterator[str]:
    if isinstance(recorded, list) and isinstance(found, list) and len(found) == len(recorded):
        for value, expected in zip(found, recorded, strict=True):
            yield from _differences(value, expected, rtol)
    elif isinstance(recorded, float) and isinstance(found, float):
        if not math.isclose(found, recorded, rel_tol=rtol, abs_tol=rtol):
            yield f"{found!r} is not {recorded!r}"
    elif type(found) is not type(recorded) or found != recorded:
        yield f"{found!r} is not {recorded!r}"


@pytest.mark.parametrize("group", GROUPS)
def test_values_are_those_that_are_recorded(group):
    recorded = json.loads(RECORDED.read_text("utf-8"))[group]
    found = {name: compute() for name, compute in GROUPS[group]().items()}
    assert sorted(found) == sorted(recorded)
    differences = []
    for name, values in found.items():
        single = group in ("layers", "models") or "single" in name
        # Functions of libm differ in the last bits between machines.
        differences += [
            f"{name}: {line}"
            for line in _differences(values, recorded[name], 1e-5 if single else 1e-10)
        ]
    assert not differences, "\n".join(differences)


if __name__ == "__main__":
    values = {
        group: {name: compute() for name, compute in make().items()}
        for group, make in GROUPS.items()
    }
    lines = json.dumps(values, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    RECORDED.write_text(lines.replace('],"', '],\n"').replace('},"', '},\n\n"') + "\n", "utf-8")
    record_files()
