"""Optimizers around optimizers, and what reads and changes their states."""

from fdbr.train.optim.wrappers.averaging import (
    ParamsEmaState,
    averaged_params,
    incremental_update,
    params_ema,
    periodic_update,
)
from fdbr.train.optim.wrappers.finite import (
    ApplyIfFiniteState,
    ConditionallyMaskState,
    ConditionallyTransformState,
    all_finite,
    apply_if_finite,
    conditionally_mask,
    conditionally_transform,
)
from fdbr.train.optim.wrappers.flattening import (
    flatten,
)
from fdbr.train.optim.wrappers.hyperparameters import (
    InjectStatefulHyperparamsState,
    inject_hyperparams,
    inject_stateful_hyperparams,
)
from fdbr.train.optim.wrappers.loss_scaling import (
    DynamicLossScale,
    LossScaleState,
    dynamic_loss_scale,
    scale_loss,
)
from fdbr.train.optim.wrappers.migrating import (
    Migration,
    migrate,
    migration,
)
from fdbr.train.optim.wrappers.monitoring import (
    MonitorState,
    SnapshotState,
    measure_with_ema,
    monitor,
    snapshot,
)
from fdbr.train.optim.wrappers.multi_steps import (
    MultiSteps,
    MultiStepsState,
    skip_large_updates,
    skip_not_finite,
)
from fdbr.train.optim.wrappers.naming import (
    named_chain,
)
from fdbr.train.optim.wrappers.partitioning import (
    PartitionState,
    freeze,
    multi_transform,
    partition,
    selective_transform,
)
from fdbr.train.optim.wrappers.plateau import (
    ReduceLROnPlateauState,
    reduce_on_plateau,
)
from fdbr.train.optim.wrappers.states import (
    tree_get,
    tree_set,
)

__all__ = [
    "ApplyIfFiniteState",
    "ConditionallyMaskState",
    "ConditionallyTransformState",
    "DynamicLossScale",
    "InjectStatefulHyperparamsState",
    "LossScaleState",
    "Migration",
    "MonitorState",
    "MultiSteps",
    "MultiStepsState",
    "ParamsEmaState",
    "PartitionState",
    "ReduceLROnPlateauState",
    "SnapshotState",
    "all_finite",
    "apply_if_finite",
    "averaged_params",
    "conditionally_mask",
    "conditionally_transform",
    "dynamic_loss_scale",
    "flatten",
    "freeze",
    "incremental_update",
    "inject_hyperparams",
    "inject_stateful_hyperparams",
    "measure_with_ema",
    "migrate",
    "migration",
    "monitor",
    "multi_transform",
    "named_chain",
    "params_ema",
    "partition",
    "periodic_update",
    "reduce_on_plateau",
    "scale_loss",
    "selective_transform",
    "skip_large_updates",
    "skip_not_finite",
    "snapshot",
    "tree_get",
    "tree_set",
]
__dir__ = __all__.copy  # `dir` shows the public names alone
