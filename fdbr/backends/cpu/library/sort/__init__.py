"""Sorts, searches and unique elements."""
