"""The tables of docs/layers.md: each example has the shapes that its row says."""

import re
from pathlib import Path

import numpy as np
import pytest

from fdbr import nn, ops, random

PAGE = Path(__file__).parents[2] / "docs" / "layers.md"
ROW = re.compile(r"^\| `(nn\..*?)` \| `(.*?) → (.*?)` \|", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


def shapes(text):
    return [eval(shape) for shape in re.findall(r"\([^()]*\)", text)]


@pytest.mark.parametrize(("example", "inputs", "outputs"), ROWS, ids=[row[0] for row in ROWS])
def test_a_layer_has_the_shapes_that_its_row_says(example, inputs, outputs):
    layer = eval(example, {"nn": nn, "ops": ops, "key": random.key(0)})
    dtype = np.int64 if inputs.startswith("int") else np.float32
    output = layer(*[np.ones(shape, dtype) for shape in shapes(inputs)])
    assert [output.shape] == shapes(outputs)
    assert output.dtype == np.float32


def test_every_layer_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    layers = {
        name
        for name in nn.__all__
        if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Layer)
    }
    bases = {re.sub(r"[123]d$", "", name) for name in layers}
    assert not {name for name in bases if f"nn.{name}" not in text}
