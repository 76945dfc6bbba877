"""What passes make is checked here."""

from compiling import at_once

__all__ = ["at_once"]
