import numpy as np
import pytest
from compiler.recorded import (
    assert_close,
    assert_kinds,
    check,
    functions,
    names,
    near_law,
    recorded,
)
from hypothesis import given
from hypothesis import strategies as st

import fdbr
from fdbr import ops, tree
from fdbr.compiler.ir.interpreter import interpret
from fdbr.compiler.ir.program import Guard
from fdbr.compiler.passes import optimise
from fdbr.compiler.passes.batch_matmuls import batch_matmuls
from fdbr.compiler.passes.cse import cse
from fdbr.compiler.passes.dce import dce
from fdbr.compiler.passes.decompose import decompose
from fdbr.compiler.passes.schedule_guards import schedule_guards
from fdbr.testing import assert_allclose

RNG = np.random.Generator(np.random.Philox(0))
PRODUCTS = "matmul", "matmul_transposed", "affine"


def normal(*shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


def batched(f, *args, tolerance=1e-12):
    """What is done after the pass, which gives the same values as before."""
    program, leaves = recorded(f, *args)
    program = cse(dce(decompose(program)))
    after = batch_matmuls(program)
    check(after)
    assert_close(program, after, leaves, tolerance)
    assert_kinds(after, leaves)
    assert str(batch_matmuls(after)) == str(after)
    found = names(after)
    return sum(found[name] for name in PRODUCTS), found


# --- sums of products ---------------------------------------------------------------

A, B = [normal(3, 8) for _ in range(6)], [normal(3, 5) for _ in range(6)]


def total(terms):
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out


def products(a, b):
    return total([x.T @ y for x, y in zip(a, b, strict=True)])


def test_a_sum_of_products_is_one_product():
    count, found = batched(products, A, B)
    assert (count, found) == (1, {"matmul": 1, "permute": 1, "concat": 2})


def test_additions_may_come_in_any_order_between_other_steps():
    def f(a, b):
        terms = [x.T @ ops.sin(y) for x, y in zip(a, b, strict=True)]
        left = terms[0] + terms[3]
        right = terms[5] + (terms[2] + terms[1])
        return ops.exp(a[0]), (terms[4] + left) + right

    count, found = batched(f, A, B)
    assert (count, found["add"], found["sin"]) == (1, 0, 6)


def test_what_is_no_such_product_is_added():
    def f(a, b, c):
        terms = [x.T @ y for x, y in zip(a, b, strict=True)]
        return total([c, *terms[:3], 2 * c, *terms[3:]])

    count, found = batched(f, A, B, normal(8, 5))
    assert (count, found["add"]) == (1, 2)


def test_three_products_are_left():
    assert batched(products, A[:3], B[:3])[0] == 3


def test_products_of_many_rows_are_left():
    a, b = [normal(20, 3) for _ in range(4)], [normal(20, 2) for _ in range(4)]
    assert batched(products, a, b)[0] == 4


def test_a_product_that_another_step_reads_stays():
    def f(a, b):
        terms = [x.T @ y for x, y in zip(a, b, strict=True)]
        return total(terms), ops.sin(terms[2])

    assert batched(f, A, B)[0] == 2


def test_a_partial_sum_that_another_step_reads_is_a_sum_of_its_own():
    def f(a, b):
        terms = [x.T @ y for x, y in zip(a, b, strict=True)]
        part = total(terms[:4])
        return part, part + terms[4] + terms[5]

    assert batched(f, A, B)[0] == 3


def test_products_of_other_dtypes_are_a_product_of_their_own():
    def f(a, b, c):
        sums = [total([x.T @ y for x, y in zip(a, side, strict=True)]) for side in (b, c)]
        return sums[0] + sums[1]

    single = [y.astype(np.float32) for y in B]
    assert batched(f, A, B, single)[0] == 2


def test_matrices_from_outside_are_joined_too():
    outside = normal(3, 8)
    assert batched(lambda a, b: outside.T @ b[0] + products(a, b), A[1:], B[1:])[0] == 1


def test_the_gradient_of_a_shared_bias_is_one_sum():
    xs = [normal(3, 4) for _ in range(5)]

    def loss(bias):
        return sum(ops.sum(ops.sin(x + bias)) for x in xs)

    found = batched(fdbr.grad(loss), normal(4))[1]
    assert (found["sum"], found["concat"]) == (1, 1)


def test_the_gradient_of_a_shared_table_is_one_table():
    indices = [np.array([0, 3, 3]), np.array([5, 0]), np.array([3])]

    def loss(table):
        return sum(ops.sum(ops.sin(ops.embed(table, i))) for i in indices)

    assert batched(fdbr.grad(loss), normal(6, 2))[1]["add_rows"] == 1


# --- parts among zeros --------------------------------------------------------------


def left_of_parts(f, x):
    def loss(x):
        return sum(ops.sum(ops.sin(part) * i) for i, part in enumerate(f(x), 1))

    found = batched(fdbr.grad(loss), x)[1]
    return {name: found[name] for name in ("unslice", "add", "concat", "stack") if found[name]}


def test_the_gradient_of_gates_is_joined():
    gates = lambda x: [x[:, :2], x[:, 2:4], x[:, 4:7], x[:, 7:]]
    assert left_of_parts(gates, normal(3, 8)) == {"concat": 1}


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_gradient_of_steps_is_stacked(axis):
    steps = lambda x: [x[(slice(None),) * axis + (t,)] for t in range(x.shape[axis])]
    assert left_of_parts(steps, normal(3, 4, 5)) == {"stack": 1}
    assert left_of_parts(lambda x: steps(x)[::-1], normal(3, 4, 5)) == {"stack": 1}


def test_the_gradient_of_numbers_is_stacked():
    assert left_of_parts(lambda x: [x[0], x[2], x[1]], normal(3)) == {"stack": 1}


def test_a_part_that_was_taken_twice_is_added_first():
    assert left_of_parts(lambda x: [x[0], x[1], x[0], x[2]], normal(3, 2)) == {
        "stack": 1,
        "add": 1,
    }


def test_parts_of_the_middle_are_put_in_their_place_together():
    assert left_of_parts(lambda x: [x[2], x[1], x[3]], normal(6, 2)) == {"stack": 1, "unslice": 1}
    assert left_of_parts(lambda x: [x[1:2], x[2:4]], normal(6, 2)) == {"concat": 1, "unslice": 1}


def test_parts_that_overlap_are_left():
    assert left_of_parts(lambda x: [x[1:], x[:-1]], normal(6, 2)) == {"unslice": 2, "add": 1}
    assert left_of_parts(lambda x: [x[0], x[2]], normal(6, 2)) == {"unslice": 2, "add": 1}


# --- products that share a weight ---------------------------------------------------

X = [normal(5, 6) for _ in range(4)]
W = normal(6, 3)


@pytest.mark.parametrize(
    ("f", "weights"),
    [
        (lambda x, w: x @ w, [W]),
        (lambda x, w: ops.linear(x, w), [normal(3, 6)]),
        (lambda x, w, b: ops.linear(x, w, b), [normal(3, 6), normal(3)]),
    ],
)
def test_products_with_one_weight_are_one(f, weights):
    count, found = batched(lambda xs, *ws: [ops.sin(f(x, *ws)) for x in xs], X, *weights)
    assert (count, found["concat"], found["slice"]) == (1, 1, 4)


def test_rows_may_be_of_different_number():
    xs = [normal(n, 6) for n in (1, 9, 2, 4)]
    assert batched(lambda xs, w: [x @ w for x in xs], xs, W)[0] == 1


def test_few_products_few_rows_or_many_rows_are_left():
    for xs in (X[:3], [x[:1] for x in X], [normal(200, 6) for _ in range(4)]):
        assert batched(lambda xs, w: [x @ w for x in xs], xs, W)[0] == len(xs)


def test_products_with_different_biases_are_left():
    biases = list(normal(4, 3))
    f = lambda xs, w, bs: [ops.linear(x, w, b) for x, b in zip(xs, bs, strict=True)]
    assert batched(f, X, normal(3, 6), biases)[0] == 4


def test_a_product_that_depends_on_another_is_left():
    square = normal(6, 6) / 3

    def f(xs, w):
        h = xs[0]
        for _ in range(5):
            h = ops.tanh(h @ w)
        return [h, *[x @ w for x in xs[1:]]]

    # The first of the chain goes with the three others.
    assert batched(f, X, square)[0] == 1 + 4


def test_inputs_may_come_after_the_first_result_was_used():
    def f(xs, w, v):
        outs, h = [], ops.sin(xs[0])
        for x in xs:
            h = ops.tanh(h + x)
            outs.append(ops.exp(h @ w) @ v)
        return outs

    assert batched(f, X, W, normal(3, 2))[0] == 2


def test_weights_whose_products_need_each_other_are_done_one_after_the_other():
    w, v = normal(6, 6) / 3, normal(6, 6) / 3

    def f(xs, w, v):
        first = [(x @ w) @ v for x in xs]
        second = [(ops.sin(x) @ v) @ w for x in xs]
        return first, second

    # All eight with w at once need four with v; the other four with v need them.
    assert batched(f, X, w, v)[0] == 1 + 1 + 4


def test_a_decision_between_them_is_taken_before_what_follows():
    def f(xs, w):
        first = [x @ w for x in xs]
        if ops.sum(first[0]) > -100:
            return [ops.sin(x) @ w for x in xs] + first
        return first

    program, leaves = recorded(f, X, W)
    after = batch_matmuls(schedule_guards(program))
    assert_close(program, after, leaves, 1e-12)
    guard = [type(step) for step in after.steps].index(Guard)
    # The product that is asked for stays alone; the others wait for the answer.
    assert [s.primitive.name for s in after.steps[:guard]] == ["matmul", "sum", "greater"]
    assert names(after)["matmul"] == 2


def test_what_a_checkpoint_computes_again_is_not_kept_for_others():
    weights = [normal(6, 6) / 3, normal(6, 6) / 3]
    rows = [normal(3, 6) for _ in range(6)]

    def gradient(wrap):
        def loss(ws):
            block = wrap(lambda x, v, w: ops.tanh(ops.tanh(x @ v) @ w))
            return sum(ops.sum(ops.sin(block(x, *ws))) for x in rows)

        return recorded(fdbr.grad(loss), weights)

    plain, leaves = gradient(lambda f: f)
    careful, _ = gradient(fdbr.checkpoint)
    free, after = optimise(plain), optimise(careful)
    assert_close(plain, free, leaves, 1e-12)
    assert_close(plain, after, leaves, 1e-12)
    # For each weight one product forward and one for its gradient, and one between them.
    assert names(free)["matmul"] == 2 + 2 + 1
    # Forward all blocks go together; backward one goes after the other.
    assert names(after)["matmul"] == names(careful)["matmul"] - 12 + 2
    last = [step.remat for step in after.steps if step.remat]
    assert last == sorted(last)
    assert len(set(last)) == 6


# --- a language model ---------------------------------------------------------------


def cell(projected, h, c, weight):
    gates = projected + ops.linear(h, weight)
    n = h.shape[-1]
    i, f, o = (ops.sigmoid(gates[:, k * n : (k + 1) * n]) for k in range(3))
    c = f * c + i * ops.tanh(gates[:, 3 * n :])
    return o * ops.tanh(c), c


def model_loss(p, tokens, labels):
    steps, batch = tokens.shape
    layers = len(p["inner"])
    hs = [np.zeros((batch, w.shape[1])) for w in p["inner"]]
    cs = list(hs)
    embedded = ops.embed(p["table"], tokens)
    loss = 0
    for t in range(steps):
        x = embedded[t]
        for layer in range(layers):
            projected = ops.linear(x, p["outer"][layer], p["bias"][layer])
            hs[layer], cs[layer] = cell(projected, hs[layer], cs[layer], p["inner"][layer])
            x = hs[layer]
        loss = loss + ops.softmax_cross_entropy(ops.linear(x, *p["out"]), labels[t])
    return loss / steps


def model_step(p, tokens, labels):
    loss, gradient = fdbr.value_and_grad(model_loss)(p, tokens, labels)
    return tree.map(lambda x, g: x - 0.5 * g, p, gradient), loss


STEPS, BATCH, WIDTH, WORDS = 7, 3, 4, 17


def model():
    return {
        "table": normal(WORDS, WIDTH),
        "outer": [normal(4 * WIDTH, WIDTH) for _ in range(2)],
        "inner": [normal(4 * WIDTH, WIDTH) for _ in range(2)],
        "bias": [normal(4 * WIDTH) for _ in range(2)],
        "out": [normal(WORDS, WIDTH), normal(WORDS)],
    }


def words():
    return RNG.integers(0, WORDS, (STEPS, BATCH))


def test_a_language_model_has_products_over_all_steps_but_those_of_the_recurrence():
    program, leaves = recorded(model_step, model(), words(), words())
    before, after = names(program), optimise(decompose(program))
    check(after)
    assert_close(program, after, leaves, 1e-11)
    assert_kinds(after, leaves)
    found = names(after)
    # Two layers' projections and the output's, forward.
    assert (before["affine"], found["affine"]) == (3 * STEPS, 3)
    # The recurrence of two layers, forward; each step needs the one before.
    assert before["matmul_transposed"] == found["matmul_transposed"] == 2 * STEPS
    # Backward: the recurrence, whose first step's state is none of the model's; gradients of
    # two layers' and the output's inputs; and of five weights.
    assert found["matmul"] == 2 * (STEPS - 1) + 3 + 5 < before["matmul"]
    # Gradients of gates and steps are joined; those of three biases and the table are one each.
    sums = [s for s in after.steps if type(s) is not Guard and s.primitive.name == "sum"]
    sums = [s for s in sums if s.params["axes"] == (0,)]
    assert (found["unslice"], len(sums), found["add_rows"]) == (0, 3, 1)
    # What is joined for the products of inputs serves those of weights too.
    joined = [s for s in after.steps if type(s) is not Guard and s.primitive.name == "concat"]
    assert len([s for s in joined if s.params["axis"] == 0]) == 2 + 2 + 3


def test_a_language_model_trains_as_it_does_without_the_passes():
    p, tokens, labels = model(), words(), words()
    program = optimise(recorded(model_step, p, tokens, labels)[0])
    plain, structure = p, tree.structure((p, 0.0))
    for _ in range(3):
        leaves = [*tree.leaves(p), tokens, labels]
        p, loss = tree.unflatten(structure, interpret(program, leaves))
        plain, expected = model_step(plain, tokens, labels)
        assert abs(loss - expected) < 1e-12
    assert_allclose(p, plain, rtol=1e-10)


# --- laws ---------------------------------------------------------------------------


@st.composite
def recurrences(draw):
    """A sequence of steps with shared weights in random places, and its gradient."""
    length, weights = draw(st.integers(3, 6)), draw(st.integers(1, 3))
    uses = draw(
        st.lists(
            st.tuples(st.integers(0, weights - 1), st.integers(0, 9), st.sampled_from("hxy")),
            min_size=1,
            max_size=4,
        )
    )

    def f(xs, ws, bias):
        h, outs = ops.tanh(xs[0]), []
        for x in xs:
            y = x
            for weight, back, kind in uses:
                base = (
                    {"h": h, "x": x, "y": y}[kind]
                    if back > 2 or not outs
                    else outs[-1 - back % len(outs)]
                )
                y = ops.tanh(ops.linear(base, ws[weight], bias) + y)
            h = y if uses[0][1] % 2 else h * 0.5 + x
            outs.append(y)
        return sum(ops.sum(ops.sin(out)) for out in outs)

    xs = [normal(3, 4) for _ in range(length)]
    ws = [normal(4, 4) for _ in range(weights)]
    gradient = draw(st.booleans())
    return (fdbr.grad(f, argnums=(0, 1, 2)) if gradient else f), [xs, ws, normal(4)]


@given(recurrences())
def test_recurrences_give_the_same_with_fewer_products(case):
    f, args = case
    program, leaves = recorded(f, *args)
    for transform in (batch_matmuls, optimise):
        after = transform(program)
        check(after)
        assert_close(program, after, leaves, 1e-10)
        assert_kinds(after, leaves)
        assert str(transform(after)) == str(after)


@given(functions())
def test_results_are_the_same_up_to_rounding(case):
    near_law(batch_matmuls, *case)
