"""Data on many ranks: shares of batches, datasets in parts, and orders that agree."""
