"""The engine: primitives, traced values, dispatch, the tape, array modules and devices."""
