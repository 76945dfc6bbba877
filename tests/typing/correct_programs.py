"""The programs of the README, typed: type checkers must find nothing, and they run."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

import fdbr
from fdbr import nn, ops, random, train, tree


def readme() -> float:
    keys = random.split(random.key(0), 3)
    x = random.normal(keys[0], (64, 2), "float32")
    label = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = nn.Sequential(nn.Linear.init(keys[1], 2, 8), ops.tanh, nn.Linear.init(keys[2], 8, 2))
    optimizer = train.optim.adam(1e-2)
    state = optimizer.init(model)

    def loss(model: nn.Sequential) -> Any:
        return ops.softmax_cross_entropy(model(x), label)

    value = 0.0
    for _ in range(3):
        value, gradient = fdbr.value_and_grad(loss)(model)
        updates, state = optimizer.update(gradient, state, model)
        model = train.optim.apply_updates(model, updates)
    return float(value) + float(ops.accuracy(model(x), label))


@fdbr.frozen
class Classifier:
    hidden: nn.Linear
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, width: int = 16) -> Self:
        first, second = random.split(key)
        return cls(nn.Linear.init(first, 2, width), nn.Linear.init(second, width, 2))

    def __call__(self, x: Any) -> Any:
        return self.out(ops.relu(self.hidden(x)))


def classifier_loss(model: Classifier, batch: Mapping[str, Any]) -> Any:
    return ops.softmax_cross_entropy(model(batch["x"]), batch["label"])


def training() -> list[float]:
    optimizer = train.optim.chain(
        train.optim.clip_by_global_norm(1.0),
        train.optim.sgd(train.optim.cosine_decay_schedule(0.1, 10), momentum=0.9),
    )

    @fdbr.jit
    def step(
        state: tuple[Classifier, Any], batch: Mapping[str, Any]
    ) -> tuple[tuple[Classifier, Any], dict[str, Any]]:
        model, opt = state
        value, gradient = fdbr.value_and_grad(classifier_loss)(model, batch)
        updates, opt = optimizer.update(gradient, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value}

    model = Classifier.init(random.key(1))
    data = {"x": np.linspace(-1.0, 1.0, 40).reshape(20, 2), "label": np.arange(20) % 2}
    batches = train.Batches(data, size=8, key=random.key(2))
    reports = train.fit(step, (model, optimizer.init(model)), batches, epochs=2)
    stages = train.average(), train.until(train.early_stopping("loss", patience=3))
    return [report.metrics["loss"] for report in train.pipe(reports, *stages)]


def transformations() -> None:
    def energy(x: Any, scale: float = 1.0) -> Any:
        return scale * ops.sum(ops.tanh(x) ** 2, axis=(-2, -1))

    x = np.linspace(-1.0, 1.0, 12).reshape(2, 2, 3)
    value, gradient = fdbr.value_and_grad(energy)(x[0], scale=2.0)
    out, pullback = fdbr.vjp(energy, x[0])
    assert out.shape == value.shape == ()
    assert gradient.shape == pullback(1.0)[0].shape == (2, 3)
    assert fdbr.vmap(fdbr.grad(energy), in_axes=(0, None))(x, 1.0).shape == x.shape
    assert fdbr.jacrev(energy)(x[0]).shape == fdbr.jit(fdbr.jacfwd(energy))(x[0]).shape
    carried, ys = fdbr.scan(lambda carry, x: (carry + x, carry), 0.0, x[0, 0])
    assert ys.shape == (3,)
    assert abs(carried - x[0, 0].sum()) < 1e-6


def operations() -> None:
    key = random.key(0)
    images = ops.zeros((2, 3, 8, 8), dtype="float32")
    out = ops.conv(images, ops.ones((4, 3, 3, 3), dtype=np.float32), padding="same")
    assert ops.max(out, axis=1, keepdims=True).shape == (2, 1, 8, 8)
    pooled = ops.reshape(ops.max_pool(out, 2), (2, -1))
    assert ops.concat([pooled, pooled], axis=-1).shape == (2, 128)
    assert ops.astype(pooled, ops.float64).dtype == ops.float64
    assert ops.mean_squared_error(pooled, 0.0 * pooled, reduction="sum").shape == ()
    assert ops.linalg.solve(np.eye(2), np.ones(2)).shape == (2,)
    assert random.uniform(key, 3, minval=-1.0).shape == (3,)
    assert random.permutation(key, np.arange(4)).shape == (4,)
    doubled = tree.map(lambda x: 2 * x, {"a": out, "b": [1.0, pooled]})
    assert doubled["b"][0] == 2.0
    numbers: list[float] = [1.0, 2.0]
    assert ops.sum(numbers) == ops.stack([1.0, 2.0]).sum()


def main() -> None:
    assert readme() > 0
    assert len(training()) == 6
    transformations()
    operations()
