"""Kernels of correlations: products of weights and packed windows.

Tiles of the product stay in registers while all taps of a block are added.
"""

import functools
import itertools

from fdbr.backends.cpu.codegen.kernel_builder import Function, Kernel, Number, Variable
from fdbr.backends.cpu.library.conv.packing import Packing, heights

__all__ = ["correlating", "packing_weights"]


def _tile(kernel: Packing, high: int, wide: int, step: int) -> Function:
    """Return the function of a tile: ``high`` outputs and ``wide`` vectors of windows.

    It starts from the bias at the first taps, and from ``out`` at later ones.  The weights are
    packed by `packing_weights`, ``step`` for each tap.
    """
    numbers, lanes = f"*{kernel.code}", kernel.width
    tile = kernel.function(
        f"tile{high}",
        {
            "weight": numbers,
            "taps": "i8",
            "block": numbers,
            "pitch": "i8",
            "out": numbers,
            "step": "i8",
            "left": "i8",
            "bias": numbers,
            "first": "b1",
            "positive": "b1",
        },
    )
    weight, taps, block, pitch, out, out_step, left, bias, first, positive = tile.parameters
    lefts = left.spread(lanes)
    masks = [tile.count_up(lanes) + i * lanes < lefts for i in range(wide)]
    whole = left >= wide * lanes  # as most tiles are; masked stores are slow
    cases = ((whole, [None]), (~whole, masks))
    targets = [out + out_step * o + i * lanes for o in range(high) for i in range(wide)]
    sums = [Variable(tile.constant(0, kernel.code, lanes)) for _ in targets]
    with tile.when(first):
        for o in range(high):
            one = tile.load(bias + o).spread(lanes)
            for i in range(wide):
                sums[o * wide + i].value = one
    with tile.when(~first):
        for flag, given in cases:
            with tile.when(flag):
                for total, target, mask in zip(sums, targets, itertools.cycle(given), strict=False):
                    total.value = tile.load(target, lanes, mask)

    def tap(k: Number, row: Number, here: Number, *totals: Number) -> list[Number]:
        xs, found = [tile.load(row + i * lanes, lanes) for i in range(wide)], []
        for o in range(high):
            factor = tile.load(here + o).spread(lanes)
            row_totals = totals[o * wide : (o + 1) * wide]
            found += [tile.apply("fma", factor, x, y) for x, y in zip(xs, row_totals, strict=True)]
        return [row + pitch, here + step, *found]

    starts = [total.value for total in sums]
    tile.cells = []
    _, _, *totals = tile.repeat(0, taps, tap, block, weight, *starts)
    found = [tile.choose(positive, tile.choose(new < 0, 0.0, new), new) for new in totals]
    for flag, given in cases:
        with tile.when(flag):
            for new, target, mask in zip(found, targets, itertools.cycle(given), strict=False):
                tile.store(target, new, mask)
    tile.end()
    return tile


@functools.cache
def packing_weights(code: str, high: int) -> str:
    """Return the kernel that packs weights: those of each tile of outputs, tap by tap.

    Its table has the addresses of the weights, of the offsets of taps, and of the target; the
    distances of outputs and groups in bytes; the outputs of a group, its tiles, and its taps.
    """
    pointers = {"weight": code, "offsets": "i8", "out": code}
    kernel = Kernel((*pointers, "step", "group", "outputs", "tiles", "taps"), pointers)
    weight, offsets, out, step, group, outputs, tiles, taps = kernel.word.values()
    far = [step * o for o in range(high)]
    with kernel.each(kernel.start, kernel.stop) as tile:
        first = tile % tiles * high
        left = outputs - first
        source = weight.by(tile // tiles * group + first * step)
        target, whole = out + tile * taps * high, left >= high
        with kernel.each(0, taps) as k:
            here, to = source.by(kernel.load(offsets + k)), target + k * high
            with kernel.when(whole):
                for o, value in enumerate([kernel.load(here.by(distance)) for distance in far]):
                    kernel.store(to + o, value)
            with kernel.when(~whole), kernel.each(0, left) as i:
                kernel.store(to + i, kernel.load(here.by(i * step)))
    return kernel.text()


@functools.cache  # other sizes have the same kernel
def correlating(code: str, lanes: int, high: int, rest: int, wide: int, stride: int) -> str:
    """Return the kernel of a correlation.

    Parameters
    ----------
    code, lanes
        The type of numbers, and the numbers of a vector.
    high, rest, wide
        The outputs of a tile, those of the last tile in each share of the outputs if they are
        fewer (otherwise 0), and the vectors of a tile.
    stride
        The distance of windows along the last axis if that is 1 or 2, and else 0.
    """
    kernel = Packing(code, lanes, stride)
    word, taps = kernel.word, kernel.taps
    tiles = [_tile(kernel, h, wide, high) for h in heights(high, rest)]
    outputs, step, block = word["outputs"], word["out.step"], word["block"]
    positive = word["positive"].differs(0)
    with kernel.units() as unit:
        number, u = unit % word["shares"], unit // word["shares"]
        begin, u = u % word["blocks"] * block, u // word["blocks"]
        n, g = u % word["examples"], u // word["examples"]
        first = number * word["share"]
        last = kernel.apply("smin", first + word["share"], outputs)
        count = kernel.apply("smin", block, kernel.windows - begin)
        x = word["x"] + (g * word["group"] + n * word["example"])
        first_tile = g * ((outputs + (high - 1)) // high)
        out = word["out"] + (n * word["out.example"] + begin)
        with kernel.each(0, taps, word["taps"]) as k:
            end = kernel.apply("smin", k + word["taps"], taps)
            kernel.pack(x, k, end, begin, count)
            is_first, cut = k.equals(0), positive & end.equals(taps)
            with kernel.each(first, last, high) as o:
                fits = o + high <= last
                weight = word["weight"] + ((first_tile + o // high) * taps + k) * high
                whole = g * outputs + o
                to, bias = out + whole * step, word["bias"] + whole
                with kernel.each(0, count, wide * lanes) as j:
                    for tile, flag in zip(tiles, (fits, ~fits), strict=False):
                        with kernel.when(flag if len(tiles) > 1 else kernel.constant(True, "b1")):
                            given = weight, end - k, kernel.memory + j, word["pitch"], to + j, step
                            kernel.call_function(tile, *given, count - j, bias, is_first, cut)
    return kernel.whole()
