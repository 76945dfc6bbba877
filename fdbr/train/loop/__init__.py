"""The loop: positions in the data, reports, sources of batches, and `fit`."""
