"""Datasets in files."""

from fdbr.train.data.files.idx import mnist, read_idx

__all__ = ["mnist", "read_idx"]
