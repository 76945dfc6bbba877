"""Around the loop on many ranks: reports, evaluation, decisions, snapshots."""
