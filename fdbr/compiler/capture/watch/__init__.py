"""What a captured function reads from outside, and how a change of it is noticed."""
