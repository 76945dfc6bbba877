"""The most memory of a backward pass of a model, beside PyTorch's.

``python -m benchmarks.models_memory`` takes VGG16 with one image of 3x224x224 (with other names,
other models); each library runs in a process of its own, three times.  The numbers are of the
whole process, in MB, and beyond what it had before the pass.
"""

import argparse
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks import memory

__all__ = ["LIBRARIES", "main"]

IMAGE = (1, 3, 224, 224)


def _fdbr(name: str, jitted: bool) -> Any:
    import fdbr
    from fdbr import nn, ops

    model = getattr(nn.models, name).init(fdbr.random.key(0))
    x = np.ones(IMAGE, np.float32)
    gradient_of_loss = fdbr.grad(lambda model: ops.softmax_cross_entropy(model(x), np.array([3])))
    gradient_of_loss = fdbr.jit(gradient_of_loss) if jitted else gradient_of_loss
    return lambda: gradient_of_loss(model)


def _torch(name: str) -> Any:
    import torch
    import torchvision

    model = getattr(torchvision.models, name.lower())().eval()
    x, label = torch.ones(IMAGE), torch.tensor([3])

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), label).backward()

    return step


LIBRARIES = {
    "torch": _torch,
    "fdbr": lambda name: _fdbr(name, False),
    "fdbr.jit": lambda name: _fdbr(name, True),
}


def _measure(library: str, name: str) -> None:
    """Print the peaks of three passes, and what there was before."""
    step = LIBRARIES[library](name)
    before = memory.resident()
    peaks = [memory.peak(step) for _ in range(3)]
    print(max(peaks), before)


def main() -> None:
    """Measure the models that are named, in all libraries, and fail if fdbr's peak is higher."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models_memory", description=__doc__)
    parser.add_argument("models", nargs="*", default=["VGG16"], metavar="MODEL")
    parser.add_argument("--library", choices=LIBRARIES, help="measure this one, in this process")
    arguments = parser.parse_args()
    if arguments.library:
        _measure(arguments.library, *arguments.models)
        return
    worse = []
    for name in arguments.models:
        peaks = {}
        for library in LIBRARIES:
            command = [sys.executable, "-m", "benchmarks.models_memory"]
            run = subprocess.run(
                [*command, "--library", library, name], capture_output=True, check=True, text=True
            )
            peaks[library], before = (int(number) >> 20 for number in run.stdout.split()[-2:])
            print(f"{name} {library}: {peaks[library]} MB, {peaks[library] - before} in the pass")
        worse += [f"{name} {lib}" for lib, peak in peaks.items() if peak > peaks["torch"]]
    if worse:
        raise SystemExit(f"more than PyTorch: {', '.join(worse)}")


if __name__ == "__main__":
    main()
