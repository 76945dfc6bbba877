"""The memory of a program: buffers and workspaces."""
