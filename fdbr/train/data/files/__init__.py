"""Datasets in files."""

from fdbr.train.data.files.cifar import cifar10, cifar100
from fdbr.train.data.files.examples import read_examples, write_examples
from fdbr.train.data.files.idx import (
    fashion_mnist_labels,
    kuzushiji_mnist_labels,
    mnist,
    read_idx,
)
from fdbr.train.data.files.images import image_files, image_folder, read_image
from fdbr.train.data.files.svhn import svhn
from fdbr.train.data.files.tables import hdf5, read_table
from fdbr.train.data.files.words import ptb_words, read_words, text_lines

__all__ = [
    "cifar10",
    "cifar100",
    "fashion_mnist_labels",
    "hdf5",
    "image_files",
    "image_folder",
    "kuzushiji_mnist_labels",
    "mnist",
    "ptb_words",
    "read_examples",
    "read_idx",
    "read_image",
    "read_table",
    "read_words",
    "svhn",
    "text_lines",
    "write_examples",
]
