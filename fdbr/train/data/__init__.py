"""Data: datasets, the order of their examples, batches, workers, and files.

`fdbr.train` shows all of it.
"""

from fdbr.train.data.batches import Batches
from fdbr.train.data.collation import collate_padded, collate_ragged, collate_stack
from fdbr.train.data.files import mnist, read_idx
from fdbr.train.data.prefetching.prefetch import prefetch
from fdbr.train.data.samplers import (
    BucketSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StratifiedSampler,
    WeightedSampler,
)
from fdbr.train.data.sequences import concatenate, gather, map_examples, subset, zip_examples
from fdbr.train.data.splitting import folds, split, split_n
from fdbr.train.data.streams import Stream

__all__ = [
    "Batches",
    "BucketSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StratifiedSampler",
    "Stream",
    "WeightedSampler",
    "collate_padded",
    "collate_ragged",
    "collate_stack",
    "concatenate",
    "folds",
    "gather",
    "map_examples",
    "mnist",
    "prefetch",
    "read_idx",
    "split",
    "split_n",
    "subset",
    "zip_examples",
]
