"""Pooling over windows and regions."""
