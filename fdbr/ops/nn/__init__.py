"""The operations of neural networks."""
