"""Steps of recurrent cells on the CPU."""
