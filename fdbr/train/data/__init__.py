"""Data: datasets, the order of their examples, batches, workers, and files.

`fdbr.train` shows all of it.
"""

from fdbr.train.data.batches import Batches
from fdbr.train.data.collation import collate_padded, collate_ragged, collate_stack
from fdbr.train.data.files import (
    cifar10,
    cifar100,
    fashion_mnist_labels,
    hdf5,
    image_files,
    image_folder,
    kuzushiji_mnist_labels,
    mnist,
    ptb_words,
    read_examples,
    read_idx,
    read_image,
    read_table,
    read_words,
    svhn,
    text_lines,
    write_examples,
)
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
    "cifar10",
    "cifar100",
    "collate_padded",
    "collate_ragged",
    "collate_stack",
    "concatenate",
    "fashion_mnist_labels",
    "folds",
    "gather",
    "hdf5",
    "image_files",
    "image_folder",
    "kuzushiji_mnist_labels",
    "map_examples",
    "mnist",
    "prefetch",
    "ptb_words",
    "read_examples",
    "read_idx",
    "read_image",
    "read_table",
    "read_words",
    "split",
    "split_n",
    "subset",
    "svhn",
    "text_lines",
    "write_examples",
    "zip_examples",
]
