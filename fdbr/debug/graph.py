"""A drawing of a tape, as a value."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from fdbr.debug.sources import Source
from fdbr.debug.tables import byte_text
from fdbr.errors.public import public

__all__ = ["Edge", "Graph", "Node"]


@public("fdbr.debug")
@attrs.frozen
class Node:
    """An entry of the tape: a value, and the operation that made it.

    Attributes
    ----------
    index
        Its place in the order of execution.
    op
        The operation; ``"input"`` for what is differentiated.
    shape, dtype
        Those of the value; `None` where they are not known, or there are several values, each
        with a node of its own.
    source
        The user's line; `None` where it is not known.
    direction
        ``"forward"``, ``"tangent"`` or ``"backward"``: the pass that was recorded.
    rule
        The operation whose derivative this is a part of, if it is part of one.
    input, output
        The name of the input or output that it is, if it is one.
    """

    index: int
    op: str
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    source: Source | None = None
    direction: str = "forward"
    rule: str | None = None
    input: str | None = None
    output: str | None = None

    @property
    def kind(self) -> str:
        """Dtype and shape; empty where they are not known."""
        if self.shape is None:
            return ""
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@public("fdbr.debug")
@attrs.frozen
class Edge:
    """That a value depends on another.

    Attributes
    ----------
    parent, child
        The indices of the two nodes; ``child`` is computed from ``parent``.
    retains
        The bytes of the arrays that the tape keeps for this derivative.
    arrays
        What these are, such as ``"float64[3]"``.
    """

    parent: int
    child: int
    retains: int
    arrays: tuple[str, ...]


@public("fdbr.debug")
@attrs.frozen
class Graph:
    """A drawing of a tape.  Print it, or save it as a picture.

    Attributes
    ----------
    name
        The function that was recorded.
    nodes
        A tuple of `Node`, in the order of execution.
    edges
        A tuple of `Edge`.
    retained
        The bytes of all arrays that the tape keeps, each counted once.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    retained: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes of the inputs."""
        return tuple(node for node in self.nodes if node.input is not None)

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes of the outputs."""
        return tuple(node for node in self.nodes if node.output is not None)

    def dot(self) -> str:
        """The drawing in DOT, the language of Graphviz."""
        lines = [f"digraph {_quoted(self.name)} {{", *_STYLE]
        for node in self.nodes:
            tip = node.source.text if node.source is not None else ""
            more = f"fillcolor={_quoted(_color(node))}, tooltip={_quoted(tip or node.op)}"
            lines.append(f"  n{node.index} [label={_quoted(_label(node))}, {more}];")
        for edge in self.edges:
            label = byte_text(edge.retains) if edge.retains else ""
            lines.append(
                f"  n{edge.parent} -> n{edge.child} [label={_quoted(label)}, "
                f"tooltip={_quoted(', '.join(edge.arrays) or 'nothing is kept')}];"
            )
        return "\n".join([*lines, "}", ""])

    def svg(self) -> str:
        """The picture as SVG.

        Raises
        ------
        RuntimeError
            If Graphviz is not installed, or cannot draw it.
        """
        return self._rendered("svg").decode("utf-8")

    def png(self) -> bytes:
        """The picture as PNG; raises as `svg` does."""
        return self._rendered("png")

    def save(self, path: str | Path) -> None:
        """Save the drawing in the format that the file's suffix names.

        Parameters
        ----------
        path
            ``.dot`` or ``.gv`` for DOT, ``.txt`` for text; ``.svg``, ``.png`` and ``.pdf`` need
            Graphviz.

        Raises
        ------
        ValueError
            If the suffix is another.
        RuntimeError
            If Graphviz is needed and not installed.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix in (".dot", ".gv"):
            path.write_text(self.dot(), encoding="utf-8")
        elif suffix == ".txt":
            path.write_text(f"{self}\n", encoding="utf-8")
        elif suffix in (".svg", ".png", ".pdf"):
            path.write_bytes(self._rendered(suffix[1:]))
        else:
            raise ValueError(
                f"fdbr.debug: cannot save a drawing as {path.name!r}; the suffix must be .dot, "
                ".gv, .txt, .svg, .png or .pdf"
            )

    def _rendered(self, form: str) -> bytes:
        program = shutil.which("dot")
        if program is None:
            raise RuntimeError(
                f"fdbr.debug: a drawing as {form} needs the program dot of Graphviz, which is not "
                "installed (apt install graphviz, brew install graphviz); print the drawing, or "
                "save it as .dot and draw it elsewhere"
            )
        done = subprocess.run(
            [program, f"-T{form}"], input=self.dot().encode("utf-8"), capture_output=True
        )
        if done.returncode != 0:
            problem = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"fdbr.debug: dot could not draw {self.name}: {problem}")
        return done.stdout

    def _repr_svg_(self) -> str | None:
        """For notebooks: the picture, where it can be drawn."""
        return self.svg() if shutil.which("dot") else None

    def __str__(self) -> str:
        parents: dict[int, list[Edge]] = {}
        for edge in self.edges:
            parents.setdefault(edge.child, []).append(edge)
        lines = [
            f"tape of {self.name}: {len(self.nodes)} nodes, {len(self.edges)} edges, "
            f"{byte_text(self.retained)} retained"
        ]
        lines += [f"  {_line(node, parents.get(node.index, []))}" for node in self.nodes]
        return "\n".join(lines)


_STYLE = (
    "  rankdir=TB;",
    '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
    '  edge [fontname="Helvetica", fontsize=9];',
)


def _line(node: Node, edges: list[Edge]) -> str:
    """A node as a line of text."""
    where = f"  at {node.source}" if node.source is not None else ""
    what = f"%{node.index} = {node.op}"
    if node.input is not None:
        what += f" {node.input}"
    else:
        what += f"({', '.join(f'%{edge.parent}' for edge in edges)})"
    kept = sum(edge.retains for edge in edges)
    more = [
        node.kind,
        f"retains {byte_text(kept)}" if kept else "",
        _part(node),
        f"output {node.output}".strip() if node.output is not None else "",
    ]
    return "  ".join([what, *filter(None, more)]) + where


def _part(node: Node) -> str:
    if node.rule is not None:
        return f"{node.direction} of {node.rule}"
    return node.direction if node.direction != "forward" else ""


def _label(node: Node) -> str:
    where = f"{Path(node.source.file).name}:{node.source.line}" if node.source is not None else ""
    title = node.op if node.input is None else node.input
    ends = f"output {node.output}".strip() if node.output is not None else ""
    return "\n".join(filter(None, [title, node.kind, _part(node), where, ends]))


def _color(node: Node) -> str:
    if node.input is not None:
        return "lightblue"
    if node.output is not None:
        return "lightgoldenrod"
    return "white" if node.direction == "forward" else "mistyrose"


def _quoted(text: str) -> str:
    """A string of DOT."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text).replace("\n", "\\n") + '"'
