"""Errors of inherited constructors name the class that was asked."""

import pytest

from fdbr import nn, random

KEY = random.key(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv.init(KEY, 0, 1, 1), r"^fdbr\.nn\.Conv\.init: in_channels"),
        (lambda: nn.Conv1d.init(KEY, 0, 1, 1), r"^fdbr\.nn\.Conv1d\.init: in_channels"),
        (
            lambda: nn.Conv1d.init(KEY, 1, 1, 1, bias=2),
            r"^fdbr\.nn\.Conv1d\.init: bias must be True",
        ),
        (lambda: nn.LSTM.init(KEY, "a", 1), r"^fdbr\.nn\.LSTM\.init: input_size"),
        (
            lambda: nn.TransformerEncoder.init(KEY, 0, 8, 2),
            r"^fdbr\.nn\.TransformerEncoder\.init: num_layers",
        ),
        (
            lambda: nn.TransformerDecoder.init(KEY, 1, 8, 3),
            r"^fdbr\.nn\.TransformerDecoder\.init: num_heads=3",
        ),
        (lambda: nn.models.ResNet50.init(KEY, 0), r"^fdbr\.nn\.models\.ResNet50\.init: classes"),
    ],
)
def test_an_inherited_constructor_is_named_by_the_class_that_was_asked(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
