"""Arrays in another resolution, or in another order of elements."""
