"""Triggers: predicates on reports."""
