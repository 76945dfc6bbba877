"""Losses, over their settings and reductions.

A case is named by PyTorch's function and its keywords, in JSON.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from benchmarks.reference import packed

Case = tuple[str, list[Any], dict[str, Any], dict[str, Any]]

_REDUCTIONS = [{"reduction": reduction} for reduction in ("none", "mean", "sum")]


def _draw(*shape: int) -> Any:
    return (torch.randn(shape, dtype=torch.float64) * 8).round() / 8 + 1 / 64  # takes few bytes


def _unit(*shape: int) -> Any:
    return torch.randint(1, 16, shape).double() / 16


def _signs(*shape: int) -> Any:
    return torch.randint(0, 2, shape).double() * 2 - 1


def _over(*settings: Any) -> Iterator[dict[str, Any]]:
    """All ways to join one dictionary of each list."""
    for chosen in itertools.product(*settings):
        yield {key: value for part in chosen for key, value in part.items()}


def _numbers() -> Iterator[Case]:
    shape = (3, 2)
    weight = {"weight": _unit(*shape)}
    for s in _REDUCTIONS:
        for arrays in ({}, weight):
            yield "mse_loss", [_draw(*shape), _draw(*shape)], s, arrays
            yield "l1_loss", [_draw(*shape), _draw(*shape)], s, arrays
            yield "huber_loss", [_draw(*shape), _draw(*shape)], {**s, "delta": 0.7}, arrays
    for s in _over(_REDUCTIONS, [{}, {"beta": 0.5}]):
        yield "smooth_l1_loss", [_draw(*shape), _draw(*shape)], s, {}


def _truths() -> Iterator[Case]:
    arrays: tuple[dict[str, Any], ...] = ({}, {"weight": _unit(3)})
    for s, more in itertools.product(_REDUCTIONS, arrays):
        yield "binary_cross_entropy", [_unit(2, 3), _unit(2, 3)], s, more
        yield "binary_cross_entropy_with_logits", [_draw(2, 3), _unit(2, 3)], s, more
        yield "multilabel_soft_margin_loss", [_draw(2, 3), torch.eye(3)[:2].double()], s, more
    both = {"weight": _unit(2, 1), "pos_weight": _unit(3)}
    yield "binary_cross_entropy_with_logits", [_draw(2, 3), _unit(2, 3)], {}, both
    for s in _REDUCTIONS:
        yield "soft_margin_loss", [_draw(2, 3), _signs(2, 3)], s, {}


def _classes() -> Iterator[Case]:
    weights: tuple[dict[str, Any], ...] = ({}, {"weight": _unit(3)})
    for shape in ((3,), (4, 3), (2, 3, 2), (2, 3, 1, 2)):
        labels = torch.randint(0, 3, shape[:1] * (len(shape) > 1) + shape[2:])
        for s, more in itertools.product(_REDUCTIONS, weights):
            yield "nll_loss", [_draw(*shape), labels], s, more
            yield "cross_entropy", [_draw(*shape), labels], {**s, "label_smoothing": 0.1}, more
            if len(shape) > 1:
                yield "cross_entropy", [_draw(*shape), labels], {**s, "ignore_index": 1}, more
                shares = torch.softmax(_draw(*shape), 1)
                smooth = {**s, "label_smoothing": 0.2}
                yield "cross_entropy", [_draw(*shape), shares], smooth, more


def _distributions() -> Iterator[Case]:
    for s in _over(_REDUCTIONS, [{"log_input": True}, {"log_input": False}], [{}, {"full": True}]):
        yield "poisson_nll_loss", [_unit(2, 3), 3 * _unit(2, 3)], s, {}
    for shape in ((2, 3), (2,), (2, 1)):
        for s in _over(_REDUCTIONS, [{}, {"full": True, "eps": 0.3}]):
            yield "gaussian_nll_loss", [_draw(2, 3), _draw(2, 3), _unit(*shape)], s, {}
    for s in [*_REDUCTIONS, {"reduction": "batchmean"}]:
        yield "kl_div", [_draw(2, 3), _unit(2, 3)], s, {}
        yield "kl_div", [_draw(2, 3), _draw(2, 3)], {**s, "log_target": True}, {}


def _margins() -> Iterator[Case]:
    labels = torch.tensor([2, 0])
    for s in _over(_REDUCTIONS, [{}, {"margin": 0.5}]):
        yield "margin_ranking_loss", [_draw(2, 3), _draw(2, 3), _signs(2, 3)], s, {}
        yield "hinge_embedding_loss", [_draw(2, 3), _signs(2, 3)], s, {}
        yield "cosine_embedding_loss", [_draw(2, 3), _draw(2, 3), _signs(2)], s, {}
        for p in ({}, {"p": 2}):
            yield "multi_margin_loss", [_draw(2, 3), labels], {**s, **p}, {"weight": _unit(3)}
        for more in _over([{}, {"swap": True}], [{}, {"p": 3.0}]):
            points = [_draw(2, 3) for _ in range(3)]
            yield "triplet_margin_loss", points, {**s, **more}, {}
    for s in _REDUCTIONS:
        several = torch.tensor([[3, 0, -1, 1], [1, 2, 0, -1]])
        yield "multilabel_margin_loss", [_draw(2, 4), several], s, {}
        points = [_draw(2, 3) for _ in range(3)]
        yield "triplet_margin_with_distance_loss", points, {**s, "swap": True}, {}
    yield "cosine_similarity", [_draw(2, 3, 2), _draw(3, 1)], {}, {}
    for order in (1.0, 2.0, 3.0):
        yield "pairwise_distance", [_draw(2, 3), _draw(3)], {"p": order}, {}


def _sequences() -> Iterator[Case]:
    lengths = [torch.tensor([6, 5, 4]), torch.tensor([3, 0, 2])]
    labels = torch.tensor([[1, 1, 2], [0, 0, 0], [3, 2, 9]])
    for s in _REDUCTIONS:
        yield "ctc_loss", [_draw(6, 3, 4), labels, *lengths], s, {}
        flat = torch.tensor([1, 1, 2, 2, 1])
        yield "ctc_loss", [_draw(6, 3, 4), flat, *lengths], {**s, "blank": 3}, {}
        short = [torch.tensor([3, 5, 4]), lengths[1]]
        yield "ctc_loss", [_draw(6, 3, 4), labels, *short], {**s, "zero_infinity": True}, {}
    yield "ctc_loss", [_draw(5, 3), torch.tensor([1, 2]), *map(torch.tensor, (5, 2))], {}, {}


def _moves(x: Any) -> bool:
    """Whether an operand is differentiated: labels 1 and -1 are not."""
    return x.is_floating_point() and not bool((x.detach().abs() == 1).all())


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every loss over its settings, differentiated by its floating operands; all in one."""
    torch.manual_seed(0)
    groups = (_numbers, _truths, _classes, _distributions, _margins, _sequences)
    found: dict[str, Any] = {}
    for number, (name, operands, settings, arrays) in enumerate(
        case for group in groups for case in group()
    ):
        moving = {i: x.requires_grad_() for i, x in enumerate(operands[:3]) if _moves(x)}
        given = list(operands)
        if name in ("ctc_loss", "nll_loss"):
            given[0] = given[0].log_softmax(-1 if name == "ctc_loss" else min(1, given[0].ndim - 1))
        y = getattr(functional, name)(*given, **settings, **arrays)
        ct = torch.randint(1, 4, y.shape).double()
        derivatives = torch.autograd.grad(y, list(moving.values()), ct)
        parts = {f"operand {i}": x for i, x in enumerate(operands)} | arrays | {"y": y, "ct": ct}
        parts |= {f"grad {i}": slope for i, slope in zip(moving, derivatives, strict=True)}
        case = f"{number} {name} {json.dumps(settings)}"
        found |= {f"{case}/{part}": array for part, array in parts.items()}
    yield "all", packed(found)
