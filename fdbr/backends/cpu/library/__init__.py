"""Implementations of single operations, used eagerly and by compiled programs."""

import fdbr.ops  # noqa: F401  # declares the operations, before modules here implement them
