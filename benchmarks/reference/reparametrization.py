"""Layers whose weight is computed from another: by its norm, and by its spectrum."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils import parametrizations

from benchmarks.reference.normalization import FLOAT, steps, stirred


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Around fully connected and convolutional layers."""
    torch.manual_seed(0)
    nn = torch.nn
    linear, conv = nn.Linear(3, 2, **FLOAT), nn.Conv1d(2, 3, 2, **FLOAT)
    turned = nn.ConvTranspose1d(2, 3, 2, **FLOAT)
    yield "WeightNorm", steps(stirred(parametrizations.weight_norm(linear)), 4, 3)
    yield "WeightNorm axis=None", steps(parametrizations.weight_norm(conv, dim=None), 1, 2, 4)
    linear = nn.Linear(3, 2, **FLOAT)
    yield "SpectralNorm", steps(stirred(parametrizations.spectral_norm(linear)), 4, 3)
    spectral = parametrizations.spectral_norm(turned, n_power_iterations=2, eps=1e-3)
    yield "SpectralNorm transposed", steps(stirred(spectral), 1, 2, 4)
