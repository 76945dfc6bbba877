"""Train a tree LSTM on programs: each example is a tree of another shape.

    python examples/tree_lstm.py

The trees are the syntax trees of functions of Python's own library, without any names and without
the arguments: is a function a method of a class?  A node's state is made of its children's by
`nn.ChildSumTreeLSTM`, in a method that calls itself: the structure of a computation is that of
the call.
"""

import argparse
import ast
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
from recording import command_line, record, run_command

import fdbr
from fdbr import nn, ops, random, train

MODULES = (
    "argparse ast calendar cmd codecs configparser csv datetime decimal difflib email/message "
    "fractions ftplib heapq http/client imaplib inspect ipaddress json/decoder logging mailbox "
    "optparse pathlib pdb pickle plistlib random shutil statistics string tarfile textwrap "
    "threading tokenize turtle typing uuid zipfile"
)
MOST = 60  # nodes of a function

Tree = tuple[int, tuple[Any, ...]]
"""The number of a node's kind, and its children."""


def functions(names: str) -> list[ast.FunctionDef]:
    """The functions of some modules of the library."""
    library = Path(sysconfig.get_path("stdlib"))
    found: list[ast.FunctionDef] = []
    for name in names.split():
        path = library / f"{name}.py"
        path = path if path.exists() else library / name / "__init__.py"
        if path.exists():
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            found += [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return found


def corpus(most: int) -> tuple[list[tuple[Tree, int]], int]:
    """Trees, with 1 for methods, as many of each; and how many kinds of nodes there are."""
    kinds: dict[str, int] = {}

    def tree(node: ast.AST) -> Tree:
        kind = kinds.setdefault(type(node).__name__, len(kinds))
        return kind, tuple(tree(child) for child in ast.iter_child_nodes(node))

    examples: tuple[list[Any], list[Any]] = ([], [])
    for function in functions(MODULES):
        is_method = [argument.arg for argument in function.args.args[:1]] == ["self"]
        body = ast.Module(function.body, [])
        if 10 <= sum(1 for _ in ast.walk(body)) <= MOST:
            examples[is_method].append((tree(body), int(is_method)))
    count = min(*map(len, examples), most // 2)
    return examples[0][:count] + examples[1][:count], len(kinds)


@fdbr.frozen
class TreeClassifier(nn.Layer):
    """Vectors of kinds of nodes, a tree LSTM, and a layer on the state of the root."""

    embed: nn.Embed
    cell: nn.ChildSumTreeLSTM
    out: nn.Linear

    @classmethod
    def init(cls, key: Any, kinds: int, units: int) -> "TreeClassifier":
        """A classifier with fresh parameters."""
        keys = random.split(key, 3)
        return cls(
            nn.Embed.init(keys[0], kinds, units),
            nn.ChildSumTreeLSTM.init(keys[1], units, units),
            nn.Linear.init(keys[2], units, 2),
        )

    def state(self, tree: Tree) -> Any:
        """The state of a tree's root."""
        kind, children = tree
        return self.cell(*(self.state(child) for child in children), self.embed(kind))

    def __call__(self, tree: Tree) -> Any:
        """The logits of being none, and of being a method."""
        h, _ = self.state(tree)
        return self.out(h)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = command_line(__doc__ or "", epochs=4, size=8, rate=5e-3)
    made.add_argument("--examples", type=int, default=1000, help="trees at the most")
    made.add_argument("--units", type=int, default=32)
    return made


def run(options: argparse.Namespace) -> float:
    """Train as the command line says; return the accuracy on what was held out."""
    examples, kinds = corpus(options.examples)
    keys = random.split(random.key(options.seed), 3)
    order = random.permutation(keys[0], len(examples))
    examples = [examples[i] for i in order]
    test, training = examples[: len(examples) // 5], examples[len(examples) // 5 :]
    model = TreeClassifier.init(keys[1], kinds, options.units)
    batches = train.Batches(np.arange(len(training)), options.batch_size, key=keys[2])
    optimizer = train.optim.adam(options.learning_rate)

    def loss(model: TreeClassifier, some: list[tuple[Tree, int]]) -> Any:
        logits = ops.stack([model(tree) for tree, _ in some])
        labels = np.array([label for _, label in some])
        value = ops.softmax_cross_entropy(logits, labels)
        return value, {"accuracy": ops.accuracy(logits, labels)}

    def step(state: Any, numbers: Any) -> Any:
        model, opt = state
        some = [training[i] for i in numbers]
        (value, metrics), grads = fdbr.value_and_grad(loss, has_aux=True)(model, some)
        updates, opt = optimizer.update(grads, opt, model)
        return (train.optim.apply_updates(model, updates), opt), {"loss": value, **metrics}

    def test_metrics(state: Any) -> dict[str, Any]:
        value, metrics = loss(state[0], test)
        return {"loss": value, **metrics}

    state = (model, optimizer.init(model))
    state = record(options.out, step, state, batches, options.epochs, test_metrics)
    return float(test_metrics(state)["accuracy"])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and print the test accuracy."""
    run_command(parser(), run, "test accuracy {:.4f}", arguments)


if __name__ == "__main__":
    main()
