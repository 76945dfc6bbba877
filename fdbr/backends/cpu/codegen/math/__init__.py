"""Elementary and special functions as expressions of arithmetic."""
