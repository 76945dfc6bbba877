"""Interpolation, grid sampling, and shuffling of pixels and channels."""
