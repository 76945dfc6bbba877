"""Gradient transformations: what is done to gradients before or after an optimizer's rule."""

from fdbr.train.optim.transforms.accumulating import ApplyEvery, EmaState, apply_every, ema
from fdbr.train.optim.transforms.adding import (
    AddNoiseState,
    WeightDecaySchedule,
    add_decayed_weights,
    add_l1,
    add_noise,
    proximal_l1,
)
from fdbr.train.optim.transforms.clipping import (
    adaptive_grad_clip,
    clip,
    clip_by_block_norm,
    clip_by_block_rms,
    clip_by_global_norm,
    global_norm,
    hard_clip,
)
from fdbr.train.optim.transforms.constraining import (
    ZeroNansState,
    keep_params_nonnegative,
    zero_nans,
)
from fdbr.train.optim.transforms.normalizing import (
    centralize,
    gradient_lars,
    normalize_by_update_norm,
    scale_by_param_block_norm,
    scale_by_param_block_rms,
    scale_by_trust_ratio,
)
from fdbr.train.optim.transforms.per_example import (
    DifferentiallyPrivateAggregateState,
    differentially_private_aggregate,
    per_example_global_norm_clip,
)
from fdbr.train.optim.transforms.stateless import (
    set_to_zero,
    stateless,
    stateless_with_tree_map,
)

__all__ = [
    "AddNoiseState",
    "ApplyEvery",
    "DifferentiallyPrivateAggregateState",
    "EmaState",
    "WeightDecaySchedule",
    "ZeroNansState",
    "adaptive_grad_clip",
    "add_decayed_weights",
    "add_l1",
    "add_noise",
    "apply_every",
    "centralize",
    "clip",
    "clip_by_block_norm",
    "clip_by_block_rms",
    "clip_by_global_norm",
    "differentially_private_aggregate",
    "ema",
    "global_norm",
    "gradient_lars",
    "hard_clip",
    "keep_params_nonnegative",
    "normalize_by_update_norm",
    "per_example_global_norm_clip",
    "proximal_l1",
    "scale_by_param_block_norm",
    "scale_by_param_block_rms",
    "scale_by_trust_ratio",
    "set_to_zero",
    "stateless",
    "stateless_with_tree_map",
    "zero_nans",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
