"""A live page of runs: ``python -m fdbr.train.watch FOLDER``."""
