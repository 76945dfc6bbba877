"""Random programs, each from its seed."""

from benchmarks.agreement.operations import OPERATIONS
from benchmarks.agreement.programs import SHAPES, Builder, Program, Unsuitable

__all__ = ["random_program"]


def random_program(seed: int, length: int = 8, kinks: bool = True) -> Program:
    """The program of a seed: always the same one.

    Without ``kinks`` it is smooth everywhere.
    """
    builder = Builder(seed)
    count = builder.choice((1, 2, 3))
    shapes = [builder.choice(SHAPES[:4]), *(builder.choice(SHAPES) for _ in range(1, count))]
    builder.values = [builder.numbers(shape) for shape in shapes]
    families = [family for name, family in OPERATIONS.items() if kinks or name != "kinked"]
    while len(builder.instructions) < length:
        try:
            builder.choice(builder.choice(families))(builder)
        except Unsuitable:
            continue
    values = builder.values
    return Program(
        seed,
        tuple(values[:count]),
        tuple(builder.numbers(x.shape) for x in values[:count]),
        tuple(builder.instructions),
        {i: builder.numbers(v.shape) for i, v in enumerate(values) if i not in builder.used},
    )
