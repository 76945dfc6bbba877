"""Every public name of PyTorch has its row in counterparts/pytorch.json."""

import importlib
import inspect
import re

import numpy as np
import pytest
from tables import check_row, resolved, rows, table

from fdbr import ops

ROWS = rows("from-pytorch")


@pytest.mark.parametrize("module", sorted({kind for kind, _, _ in ROWS}))
def test_every_row_leads_somewhere_or_says_why_not(module):
    for row in table("from-pytorch")[module].values():
        check_row(row)


def test_hardly_any_module_or_function_of_networks_has_no_counterpart():
    networks = [row for kind, _, row in ROWS if kind in ("torch.nn", "torch.nn.functional")]
    assert sum(isinstance(row, dict) and "none" in row for row in networks) <= 12


def test_there_is_a_row_for_each_function_and_method_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    known = table("from-pytorch")
    if torch.__version__ > "2.13.1":
        pytest.skip("this version may have more names")
    for module in known:
        if module in ("torch.nn", "torch.nn.functional", "torch.Tensor", "torch.utils.checkpoint"):
            continue
        theirs = importlib.import_module(module)
        names = {
            name
            for name in getattr(theirs, "__all__", ())
            if re.match("[a-z]" if module == "torch" else "[A-Za-z]", name)
            and name != "Tensor"
            and not inspect.ismodule(getattr(theirs, name, theirs))
        }
        in_place = {name for name in names if module == "torch" and name.endswith("_")}
        assert not names - in_place - known[module].keys(), module
    methods = {name for name in dir(torch.Tensor) if re.match("[A-Za-z].*[^_]$|.$", name)}
    assert not methods - known["torch.Tensor"].keys() - known["torch"].keys()


def test_there_is_a_row_for_whatever_this_version_of_pytorch_has():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    modules = {
        name
        for name, value in vars(torch.nn).items()
        if inspect.isclass(value) and issubclass(value, torch.nn.Module)
    }
    known = table("from-pytorch")["torch.nn"].keys()
    newer = modules - known
    assert not newer or torch.__version__ > "2.13.1", newer


# PyTorch's names of arguments, by which its users call the functions of the same name.
KEYWORDS = {
    "avg_pool": "kernel_size stride padding ceil_mode count_include_pad divisor_override",
    "binary_cross_entropy": "weight reduction",
    "binary_cross_entropy_with_logits": "weight reduction pos_weight",
    "celu": "alpha",
    "conv": "weight bias stride padding dilation groups",
    "conv_transpose": "weight bias stride padding output_padding groups dilation",
    "cosine_similarity": "dim eps",
    "cross_entropy": "weight ignore_index reduction label_smoothing",
    "ctc_loss": "input_lengths target_lengths blank reduction zero_infinity",
    "elu": "alpha",
    "fold": "output_size kernel_size dilation padding stride",
    "gelu": "approximate",
    "glu": "dim",
    "grid_sample": "grid mode padding_mode align_corners",
    "gumbel_softmax": "tau hard dim",
    "hard_tanh": "min_val max_val",
    "huber_loss": "reduction delta weight",
    "interpolate": "size scale_factor mode align_corners antialias",
    "leaky_relu": "negative_slope",
    "log_softmax": "dim",
    "max_pool": "kernel_size stride padding dilation ceil_mode return_indices",
    "nll_loss": "weight ignore_index reduction",
    "normalize": "p eps dim",
    "pairwise_distance": "p eps keepdim",
    "pixel_shuffle": "upscale_factor",
    "scaled_dot_product_attention": "attn_mask dropout_p is_causal scale enable_gqa",
    "smooth_l1_loss": "reduction beta",
    "softmax": "dim",
    "softmin": "dim",
    "softplus": "beta threshold",
    "triplet_margin_loss": "margin p eps swap reduction",
    "unfold": "kernel_size dilation padding stride",
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_functions_take_the_names_of_pytorchs_arguments(name):
    taken = inspect.signature(getattr(ops, name)).parameters
    assert set(KEYWORDS[name].split()) <= taken.keys()


def test_rows_of_functions_that_take_their_arguments_otherwise_say_so():
    functions = table("from-pytorch")["torch.nn.functional"]
    named = {name: row for name, row in functions.items() if isinstance(row, dict)}
    for name in ("batch_norm", "embedding", "instance_norm", "layer_norm", "pad", "rms_norm"):
        assert "differs" in named[name]


OPERANDS = set(
    "input1 input2 target targets log_probs var x1 x2 anchor positive negative weight bias "
    "logits tensor".split()
)
"""What has a place here, and no name."""


def test_every_other_argument_of_pytorchs_functions_has_its_name_or_the_row_says_why_not():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    refused = {}
    for name, row in table("from-pytorch")["torch.nn.functional"].items():
        theirs = getattr(torch.nn.functional, name, None)
        if not isinstance(row, str) or not inspect.isfunction(theirs):
            continue
        ours = inspect.signature(resolved(row)).parameters
        free = {"input", "inplace", "out", "size_average", "reduce", "args", "kwargs"} | OPERANDS
        missing = set(inspect.signature(theirs).parameters) - ours.keys() - free
        refused |= {name: missing} if missing else {}
    assert not refused


def test_an_axis_is_called_dim_too():
    x = np.arange(6.0).reshape(2, 3)
    for f in (ops.softmax, ops.log_softmax, ops.softmin, ops.normalize):
        np.testing.assert_array_equal(f(x, dim=0), f(x, axis=0))
        with pytest.raises(ValueError, match="axis=-2 and dim=0 are two names"):
            f(x, axis=-2, dim=0)
    np.testing.assert_array_equal(ops.glu(x, dim=0), ops.glu(x, axis=0))
    np.testing.assert_array_equal(
        ops.cosine_similarity(x, x + 1, dim=0), ops.cosine_similarity(x, x + 1, axis=0)
    )
    assert ops.pairwise_distance(x, x, keepdim=True).shape == (2, 1)


def test_losses_lead_to_losses():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name, row in table("from-pytorch")["torch.nn.functional"].items():
        path = row if isinstance(row, str) else row.get("path", "")
        theirs = getattr(torch.nn.functional, name, None)
        if path.startswith("fdbr.ops.") and inspect.isfunction(theirs):
            ours = getattr(ops, path.removeprefix("fdbr.ops."))
            reduced = "reduction" in inspect.signature(theirs).parameters
            assert not reduced or "reduction" in inspect.signature(ours).parameters, name
