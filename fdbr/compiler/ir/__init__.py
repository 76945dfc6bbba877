"""Programs: what passes read and make, and back ends run."""
