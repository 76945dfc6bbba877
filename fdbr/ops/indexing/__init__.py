"""Reading and writing elements by their places: with keys, integers, segments, rows of tables."""
