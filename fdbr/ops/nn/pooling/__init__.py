"""Windows and regions that are pooled."""
