"""A drawing has the nodes and edges of the tape, and can be printed, saved and rendered."""

import os
import re
import shutil
import stat
import sys

import numpy as np
import pytest

import fdbr
from fdbr import debug, ops


def loss(w, x):
    h = ops.tanh(x @ w)
    return ops.sum(h * h)


@pytest.fixture
def graph():
    return debug.draw(loss, np.ones((3, 2)), np.ones((4, 3)))


def arrows(graph):
    """Edges as pairs of operations, inputs by name."""
    names = [node.input or node.op for node in graph.nodes]
    return sorted((names[edge.parent], names[edge.child]) for edge in graph.edges)


# --- nodes and edges ----------------------------------------------------------------


def test_a_drawing_has_the_operations_in_the_order_of_execution(graph):
    assert [node.op for node in graph.nodes] == [
        "input", "input", "matmul", "tanh", "multiply", "sum",
    ]  # fmt: skip
    assert [node.index for node in graph.nodes] == list(range(6))
    assert all(edge.parent < edge.child for edge in graph.edges)


def test_a_drawing_has_the_edges_of_the_tape(graph):
    assert arrows(graph) == [
        ("matmul", "tanh"),
        ("multiply", "sum"),
        ("tanh", "multiply"),
        ("tanh", "multiply"),
        ("w", "matmul"),
        ("x", "matmul"),
    ]


def test_nodes_have_shapes_dtypes_and_lines(graph):
    assert [node.kind for node in graph.nodes] == [
        "float64[3,2]", "float64[4,3]", "float64[4,2]", "float64[4,2]", "float64[4,2]", "float64[]",
    ]  # fmt: skip
    texts = [node.source and node.source.text for node in graph.nodes]
    assert texts[:2] == [None, None]
    assert texts[2:4] == ["h = ops.tanh(x @ w)"] * 2
    assert texts[4:] == ["return ops.sum(h * h)"] * 2
    assert graph.nodes[2].dtype == np.float64


def test_inputs_have_the_names_of_arguments_and_paths():
    def f(params, scale):
        return ops.sum(params["w"] * params["b"][0]) * scale

    drawn = debug.draw(f, {"w": np.ones(2), "b": [np.ones(()), 3]}, 2.0)
    assert [node.input for node in drawn.inputs] == ["params['b'][0]", "params['w']", "scale"]
    assert drawn.outputs[0].output == ""


def test_an_edge_tells_what_the_tape_keeps(graph):
    kept = {(graph.nodes[e.parent].op, graph.nodes[e.child].op): e for e in graph.edges}
    assert kept["matmul", "tanh"].retains == 4 * 2 * 8
    assert kept["matmul", "tanh"].arrays == ("float64[4,2]",)
    assert kept["multiply", "sum"].retains == 0
    # The operands of matmul, the operand of tanh, and its output, which the product keeps.
    assert graph.retained == (3 * 2 + 4 * 3 + 2 * (4 * 2)) * 8


def test_a_view_keeps_the_whole_array():
    drawn = debug.draw(lambda x: ops.sum(ops.exp(x)[:2] ** 2), np.ones(100))
    assert drawn.retained == 800


def test_an_input_without_influence_stands_alone():
    drawn = debug.draw(lambda x, y: ops.sum(x), np.ones(2), np.ones(3))
    assert [node.input for node in drawn.inputs] == ["x", "y"]
    assert arrows(drawn) == [("x", "sum")]


def test_arguments_that_cannot_be_differentiated_are_passed_on():
    drawn = debug.draw(lambda n, x, flag: ops.sum(x[:n]), 2, np.ones(3), "yes")
    assert [node.input for node in drawn.inputs] == ["x"]


def test_an_input_may_be_an_output_and_outputs_have_paths():
    drawn = debug.draw(lambda x: {"same": x, "more": (ops.sin(x),)}, np.ones(2))
    assert [(node.op, node.output) for node in drawn.outputs] == [
        ("input", "['same']"),
        ("sin", "['more'][0]"),
    ]


def test_operations_with_several_outputs_have_a_node_for_each():
    drawn = debug.draw(fdbr.checkpoint(lambda x: (ops.sin(x), ops.sum(ops.cos(x)))), np.ones(3))
    assert [node.op for node in drawn.nodes] == [
        "input", "checkpoint", "checkpoint[0]", "checkpoint[1]",
    ]  # fmt: skip
    assert [node.kind for node in drawn.nodes] == ["float64[3]", "", "float64[3]", "float64[]"]


def test_functions_with_rules_of_their_own_are_one_node_with_what_they_keep():
    @fdbr.custom_vjp
    def mine(x, y):
        return ops.exp(x) * y

    mine.defvjp(
        lambda x, y: (ops.exp(x) * y, {"e": ops.exp(x)}),
        lambda kept, ct: (ct * kept["e"], ct),
    )
    drawn = debug.draw(lambda x, y: ops.sum(mine(x, y)), np.ones(5), np.ones(5))
    assert [node.op for node in drawn.nodes] == ["input", "input", "custom_vjp(mine)", "sum"]
    assert drawn.retained == 40
    assert arrows(drawn)[1:] == [("x", "custom_vjp(mine)"), ("y", "custom_vjp(mine)")]


def test_a_derivative_can_be_drawn_and_tells_whose_rules_it_consists_of():
    drawn = debug.draw(fdbr.grad(lambda x: ops.sum(ops.exp(x))), np.ones(2))
    parts = {node.rule for node in drawn.nodes if node.direction == "backward"}
    assert parts == {"exp"}
    assert {node.op for node in drawn.nodes if node.direction == "forward"} == {"input", "exp"}


def test_arrays_of_other_modules_are_drawn(xp):
    drawn = debug.draw(lambda x: ops.sum(ops.exp(x)), xp.asarray(np.ones(4, "float32")))
    assert [node.kind for node in drawn.nodes] == ["float32[4]", "float32[4]", "float32[]"]
    assert drawn.retained == 16


def test_a_function_is_drawn_inside_of_a_transformation():
    shapes = []

    def f(x):
        shapes.extend(node.shape for node in debug.draw(ops.sin, x).nodes)
        return ops.sum(x)

    fdbr.vmap(f)(np.ones((5, 2)))
    assert shapes == [(2,), (2,)]


# --- pullbacks ----------------------------------------------------------------------


def test_a_pullback_is_drawn_without_lines():
    _, pullback = fdbr.vjp(loss, np.ones((3, 2)), np.ones((4, 3)))
    drawn = debug.draw(pullback)
    assert [node.op for node in drawn.nodes][2:] == ["matmul", "tanh", "multiply", "sum"]
    assert [node.input for node in drawn.inputs] == ["argument 0", "argument 1"]
    assert [node.kind for node in drawn.nodes][1:4] == ["float64[4,3]", "", ""]
    assert drawn.nodes[-1].kind == "float64[]"
    assert {node.source for node in drawn.nodes} == {None}
    assert pullback(1.0)[0].shape == (3, 2)


def test_a_pullback_that_was_annotated_is_drawn_as_the_function_is(graph):
    with debug.annotate():
        _, pullback = fdbr.vjp(loss, np.ones((3, 2)), np.ones((4, 3)))
    drawn = debug.draw(pullback)
    assert drawn.edges == graph.edges
    assert [node.source for node in drawn.nodes] == [node.source for node in graph.nodes]


# --- pictures -----------------------------------------------------------------------

STRING = r'"(?:[^"\\]|\\.)*"'
ATTRIBUTES = rf"\[(?:\w+={STRING}(?:, )?)+\]"


def parse(dot):
    """Nodes and edges of a text in DOT, which must be well-formed."""
    first, *lines, last = dot.strip().splitlines()
    assert re.fullmatch(rf"digraph {STRING} {{", first)
    assert last == "}"
    nodes, edges = {}, []
    for line in lines:
        if node := re.fullmatch(rf"  (n\d+) ({ATTRIBUTES});", line):
            nodes[node[1]] = dict(re.findall(rf"(\w+)=({STRING})", node[2]))
        elif edge := re.fullmatch(rf"  (n\d+) -> (n\d+) ({ATTRIBUTES});", line):
            edges.append((edge[1], edge[2]))
        else:
            assert re.fullmatch(r"  rankdir=TB;|  (node|edge) \[.*\];", line)
    assert {end for edge in edges for end in edge} <= set(nodes)
    return nodes, edges


def test_dot_is_well_formed_and_has_all_nodes_and_edges(graph):
    nodes, edges = parse(graph.dot())
    assert len(nodes) == len(graph.nodes)
    assert edges == [(f"n{edge.parent}", f"n{edge.child}") for edge in graph.edges]
    assert nodes["n0"]["label"] == '"w\\nfloat64[3,2]"'
    assert re.search(r"tanh\\nfloat64\[4,2\]\\ntest_drawing.py:\d+", nodes["n3"]["label"])


def test_names_with_quotes_and_backslashes_are_well_formed():
    drawn = debug.draw(lambda p: ops.sum(p['a "quoted" \\ name']), {'a "quoted" \\ name': 1.0})
    nodes, _ = parse(drawn.dot())
    assert r"a \"quoted\" \\" in nodes["n0"]["label"]


def test_a_drawing_prints_as_text(graph):
    head, *lines = str(graph).splitlines()
    assert head == f"tape of loss: 6 nodes, 6 edges, {graph.retained} B retained"
    assert lines[0] == "  %0 = input w  float64[3,2]"
    assert lines[3].startswith("  %3 = tanh(%2)  float64[4,2]  retains 64 B  at test_drawing.py:")
    assert "output" in lines[5]


def test_a_drawing_is_saved_as_dot_or_text(graph, tmp_path):
    graph.save(tmp_path / "tape.dot")
    graph.save(str(tmp_path / "tape.txt"))
    assert (tmp_path / "tape.dot").read_text() == graph.dot()
    assert (tmp_path / "tape.txt").read_text() == f"{graph}\n"
    with pytest.raises(ValueError, match=r"tape\.jpeg.*\.svg"):
        graph.save(tmp_path / "tape.jpeg")


def test_without_graphviz_the_error_says_what_to_do(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for render in (graph.svg, graph.png, lambda: graph.save(tmp_path / "tape.svg")):
        with pytest.raises(RuntimeError, match=r"Graphviz.*not installed.*save it as \.dot"):
            render()
    assert graph._repr_svg_() is None
    assert not (tmp_path / "tape.svg").exists()


@pytest.fixture
def fake_dot(tmp_path, monkeypatch):
    """A program named dot that gives its argument and its input."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "dot"
    program.write_text(
        f"#!{sys.executable}\nimport sys\ntext = sys.stdin.read()\n"
        "if 'fail' in text: sys.exit('syntax error')\n"
        "print('<svg>', sys.argv[1], text)\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])


def test_graphviz_is_given_the_drawing_and_the_format(graph, fake_dot, tmp_path):
    assert graph.svg() == f"<svg> -Tsvg {graph.dot()}\n"
    assert graph.png().startswith(b"<svg> -Tpng digraph")
    assert graph._repr_svg_() == graph.svg()
    graph.save(tmp_path / "tape.pdf")
    assert (tmp_path / "tape.pdf").read_bytes().startswith(b"<svg> -Tpdf digraph")


def test_an_error_of_graphviz_is_told(fake_dot):
    def fail(x):
        return ops.sum(x)

    with pytest.raises(RuntimeError, match=r"dot could not draw .*fail: syntax error"):
        debug.draw(fail, np.ones(2)).svg()


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it(graph, tmp_path):
    assert "<svg" in graph.svg()
    assert graph.svg().count('class="node"') == len(graph.nodes)
    assert graph.png().startswith(b"\x89PNG")
    graph.save(tmp_path / "tape.svg")
    assert "<svg" in (tmp_path / "tape.svg").read_text()


# --- errors -------------------------------------------------------------------------


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(TypeError, match="no argument of loss has a leaf to differentiate"):
        debug.draw(loss, 1, 2)
    with pytest.raises(TypeError, match="must be a function or a pullback, not float64"):
        debug.draw(np.ones(2))
    _, pullback = fdbr.vjp(ops.sin, 1.0)
    with pytest.raises(TypeError, match="without arguments"):
        debug.draw(pullback, 1.0)
