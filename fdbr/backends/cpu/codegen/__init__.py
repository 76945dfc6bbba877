"""Code generation: from expressions to LLVM IR."""
