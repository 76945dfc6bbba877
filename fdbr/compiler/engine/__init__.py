"""The engine of `jit`: it decides when to trace, compile, replay or run eagerly."""
