"""When a jitted function is traced, compiled, replayed or run eagerly."""
