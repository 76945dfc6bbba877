"""Layers beside PyTorch's: forward and backward, by their parameters and inputs."""
