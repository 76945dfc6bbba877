"""One model on several ranks: its layers divided, or one after the other, or its state in parts."""
