"""Kernels of the weight gradients of correlations: inner products over windows.

Tiles of the result stay in registers while all windows of a block are added.
"""

from fdbr.backends.cpu.codegen.kernel_builder import Function, Number
from fdbr.backends.cpu.library.conv.packing import Packing, heights

__all__ = ["inner"]


def _dots(kernel: Packing, high: int, wide: int) -> Function:
    """Return a function that adds inner products of ``high`` rows of ``y``, ``wide`` of a block."""
    numbers, lanes = f"*{kernel.code}", kernel.width
    dots = kernel.function(
        f"dots{high}.{wide}",
        {
            "y": numbers,
            "step": "i8",
            "block": numbers,
            "pitch": "i8",
            "count": "i8",
            "out": numbers,
            "out.step": "i8",
            "first": "b1",
        },
    )
    y, step, block, pitch, count, out, out_step, first = dots.parameters
    ys, xs = [y + step * o for o in range(high)], [block + pitch * i for i in range(wide)]

    def added(at: Number, totals: tuple[Number, ...], mask: Number | None = None) -> list[Number]:
        vectors, found = [dots.load(x + at, lanes) for x in xs], []
        for o in range(high):
            factor = dots.load(ys[o] + at, lanes, mask)
            for i, x in enumerate(vectors):
                found.append(dots.apply("fma", factor, x, totals[o * wide + i]))
        return found

    none = [dots.constant(0, kernel.code, lanes)] * (high * wide)
    whole = count & -lanes
    totals = dots.repeat(0, whole, lambda j, *sums: added(j, sums), *none, step=lanes)
    mask = dots.count_up(lanes) < (count - whole).spread(lanes)
    totals = added(whole, tuple(totals), mask)
    sums = [dots.lane(dots.folded(total, Number.__add__)) for total in totals]
    targets = [out + out_step * o + i for o in range(high) for i in range(wide)]
    for flag, is_first in ((first, True), (~first, False)):
        with dots.when(flag):
            for target, found in zip(targets, sums, strict=True):
                dots.store(target, found if is_first else dots.load(target) + found)
    dots.end()
    return dots


def inner(code: str, lanes: int, high: int, rest: int, wide: int, stride: int) -> str:
    """Return the kernel of the inner products of channels of ``y`` with taps of ``x``.

    In its table ``weight`` is ``y``; the distances of its channels are ``weight.step``, of groups
    ``weight.group``, and of examples ``out.example``.  Outputs are ``out.step`` apart in ``out``.
    ``shares`` are those of the taps of a group, with ``taps`` in each.
    """
    kernel = Packing(code, lanes, stride)
    word, windows, block = kernel.word, kernel.windows, kernel.word["block"]
    tiles = [
        [_dots(kernel, h, w) for w in ((wide, 1) if wide > 1 else (1,))]
        for h in heights(high, rest)
    ]
    outputs, step = word["outputs"], word["weight.step"]
    with kernel.units() as unit:
        k, g = unit % word["shares"] * word["taps"], unit // word["shares"]
        end = kernel.apply("smin", k + word["taps"], kernel.taps)
        taps = end - k
        broad = taps // wide * wide
        with kernel.each(0, word["examples"]) as n, kernel.each(0, windows, block) as begin:
            count = kernel.apply("smin", block, windows - begin)
            x = word["x"] + (g * word["group"] + n * word["example"])
            kernel.pack(x, k, end, begin, count)
            is_first = (n | begin).equals(0)
            with kernel.each(0, outputs, high) as o:
                y = word["weight"] + (g * word["weight.group"] + n * word["out.example"])
                y = y + (o * step + begin)
                out = word["out"] + ((g * outputs + o) * word["out.step"] + k)
                fits = o + high <= outputs
                for functions, flag in zip(tiles, (fits, ~fits), strict=False):
                    with kernel.when(flag if len(tiles) > 1 else kernel.constant(True, "b1")):
                        spans = ((0, broad, wide), (broad, taps, 1))
                        for dots, (start, stop, many) in zip(functions, spans, strict=False):
                            with kernel.each(start, stop, many) as i:
                                row = kernel.memory + i * word["pitch"]
                                given = y, step, row, word["pitch"], count, out + i
                                kernel.call_function(dots, *given, word["out.step"], is_first)
    return kernel.whole()
