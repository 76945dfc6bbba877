"""Vector types of floating-point numbers in LLVM."""

__all__ = ["VectorTypes"]


class VectorTypes:
    """Hold the names of vector types of floating-point numbers, and of related types.

    Attributes
    ----------
    size, lanes
        The bytes of a number, and the number of lanes of a vector.
    one, many
        The types of a number and of a vector.
    flags, whole
        The vector types of booleans and of 64-bit integers.
    suffix
        The suffix of overloaded intrinsics.
    lane
        The lane indices, as the elements of a vector.
    """

    def __init__(self, size: int, lanes: int) -> None:
        self.size, self.lanes = size, lanes
        self.one = "float" if size == 4 else "double"
        self.many, self.flags = f"<{lanes} x {self.one}>", f"<{lanes} x i1>"
        self.whole = f"<{lanes} x i64>"
        self.suffix = f"v{lanes}f{8 * size}"
        self.lane = f"<{', '.join(f'i64 {k}' for k in range(lanes))}>"
        self.first = f"<{lanes} x i32> zeroinitializer"

    def spread(self, name: str, value: str, kind: str = "") -> str:
        """Return instructions that broadcast a number to a vector."""
        one = kind or self.one
        vector = f"<{self.lanes} x {one}>"
        return (
            f"  %{name}.head = insertelement {vector} poison, {one} {value}, i64 0\n"
            f"  %{name} = shufflevector {vector} %{name}.head, {vector} poison, {self.first}\n"
        )

    def declared(self) -> str:
        """Return the declarations of the intrinsics on such vectors."""
        many, flags = self.many, self.flags
        pointers = f"<{self.lanes} x ptr>"
        return f"""
declare {many} @llvm.masked.load.{self.suffix}.p0(ptr, i32 immarg, {flags}, {many})
declare void @llvm.masked.store.{self.suffix}.p0({many}, ptr, i32 immarg, {flags})
declare {many} @llvm.masked.gather.{self.suffix}.v{self.lanes}p0({pointers}, i32 immarg, {flags},
  {many})
declare {many} @llvm.fma.{self.suffix}({many}, {many}, {many})
declare {self.one} @llvm.vector.reduce.fadd.{self.suffix}({self.one}, {many})
"""
