"""Transformations of functions: derivatives, batches, custom rules, checkpoints."""
