"""Back ends: what runs programs."""
