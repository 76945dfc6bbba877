"""The memory of a program: buffer assignment and workspaces."""
