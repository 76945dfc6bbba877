"""Linear algebra on stacks of small matrices."""
