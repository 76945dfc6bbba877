"""Programs are compiled before their first run here: see test_tiers.py for when they are else."""

from compiling import at_once

__all__ = ["at_once"]
