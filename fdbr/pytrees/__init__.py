"""Frozen classes, the structure of trees, and floating dtypes: what lies below everything."""
