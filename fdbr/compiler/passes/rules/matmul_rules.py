"""Rules for matrix products."""

from fdbr.compiler.ir import op
from fdbr.compiler.ir.program import Instruction, kind_of
from fdbr.compiler.passes.rules.table import Facts, Found, applied, rule


@rule(op.MATMUL)
def of_vectors(step: Instruction, facts: Facts) -> Found:
    """Rewrite batched outer products as elementwise ones, which kernels write at memory speed.

    For a single matrix the BLAS is as fast.
    """
    x, y = step.operands
    kind = kind_of(x)
    if len(kind.shape) < 3 or kind.shape[-1] != 1 or step.outs[0].kind.dtype.kind not in "fc":
        return None
    return applied(step, op.MULTIPLY, x, y)
