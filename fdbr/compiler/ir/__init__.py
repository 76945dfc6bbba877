"""The intermediate representation: programs that passes rewrite and back ends run."""
