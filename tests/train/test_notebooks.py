"""Models, summaries and reports as notebooks show them."""

import re

import numpy as np
import pytest

import fdbr
from fdbr import nn, ops, train


@fdbr.frozen
class Named(nn.Layer):
    weight: object
    name: str = fdbr.static(default="<script>alert(1)</script>")

    def __call__(self, x):
        return ops.matmul(x, self.weight)


MODEL = nn.Sequential(Named(np.ones((4, 3), "float32")), ops.tanh)


@pytest.mark.parametrize("value", [MODEL, Named(np.ones((4, 3))), nn.summary(MODEL, (2, 4))])
def test_a_model_and_its_summary_are_shown_as_they_are_printed_and_escaped(value):
    text = value._repr_html_()
    assert "<script>" not in text
    assert re.fullmatch(r"<pre>[^<>]*</pre>", text)
    assert ("4,3" in text) or ("2,3" in text)
    assert len(text) < 3000


def test_a_report_is_shown_as_a_table_with_its_metrics():
    metrics = {"loss": np.float32(0.12345678), "<b>": "<i>", "n": 3, "x": np.zeros((2, 3))}
    report = train.Report(7, 1, metrics, None, train.Position(1, 0), 2.5)
    text = report._repr_html_()
    assert "<th>loss</th>" in text
    assert "<td>0.123457</td>" in text
    assert "<td>7</td><td>1</td><td>2.5</td>" in text
    assert "<th>&lt;b&gt;</th>" in text
    assert "<td>&lt;i&gt;</td>" in text
    assert "<td>float64[2,3]</td>" in text
