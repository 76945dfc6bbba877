"""Tests of operations."""

from ops import cases  # noqa: F401 (before the families of cases, which need it and each other)
