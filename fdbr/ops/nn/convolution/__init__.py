"""Convolutions, transposed, deformable and local, and unfolding."""
