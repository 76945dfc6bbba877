"""State, gradients and parameters in parts train as they do whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fdbr
from fdbr import distributed as d
from fdbr import ops, random, tree
from fdbr.train import optim

OPTIMIZERS = {
    "adam": lambda: optim.adam(0.1),
    "momentum": lambda: optim.sgd(0.1, momentum=0.9),
    "lamb": lambda: optim.lamb(0.1),
    "clipped": lambda: optim.chain(optim.clip_by_global_norm(0.5), optim.adamw(0.1)),
    "block": lambda: optim.chain(optim.clip_by_block_norm(0.5), optim.rmsprop(0.1)),
}


def params_of(dtype="float64"):
    made = random.normal(random.key(0), (23,), "float64")
    return {
        "w": np.asarray(made[:12]).reshape(3, 4).astype(dtype),
        "b": np.asarray(made[12:19]).astype("float64"),
        "scale": np.float64(made[19]),
        "steps": np.arange(3),
        "none": None,
        "empty": np.zeros((0, 2)),
    }


def loss(params, x):
    out = ops.tanh(x @ params["w"]) * params["scale"] + params["b"][:4]
    return ops.mean(ops.sum(out**2, axis=1)) + ops.sum(params["b"] ** 2)


def batches():
    return np.asarray(random.normal(random.key(5), (3, 12, 3), "float64"))


def trained(optimizer, params, steps, share=lambda x: x, **options):
    state = optimizer.init(params)
    for x in steps:
        grads = fdbr.grad(loss)(params, share(x))
        updates, state = optimizer.update(grads, state, params, **options)
        params = optim.apply_updates(params, updates)
    return params, state


def close(found, wanted, tolerance=1e-12):
    assert tree.structure(found) == tree.structure(wanted)
    for a, b in zip(tree.leaves(found), tree.leaves(wanted), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@settings(max_examples=12)
@given(
    size=st.sampled_from([1, 2, 3, 4]),
    name=st.sampled_from(sorted(OPTIMIZERS)),
    stage=st.sampled_from([1, 2]),
)
def test_divided_state_gives_the_parameters_of_one_process(size, name, stage):
    wanted, _ = trained(OPTIMIZERS[name](), params_of(), batches())

    def f(comm):
        optimizer = d.sharded(OPTIMIZERS[name](), comm, stage=stage)
        return trained(
            optimizer, params_of(), batches(), lambda x: np.array_split(x, comm.size)[comm.rank]
        )[0]

    for found in d.run_in_threads(f, size):
        close(found, wanted)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_divided_parameters_give_those_of_one_process(name):
    wanted, _ = trained(OPTIMIZERS[name](), params_of(), batches())

    def f(comm):
        optimizer = d.sharded(OPTIMIZERS[name](), comm, stage=3)
        params = d.shard_params(params_of(), comm)
        state = optimizer.init(params)

        def own_loss(params, x):
            return loss(d.gather_params(params, comm), x)

        for x in batches():
            grads = fdbr.grad(own_loss)(params, np.array_split(x, comm.size)[comm.rank])
            updates, state = optimizer.update(grads, state, params)
            params = optim.apply_updates(params, updates)
        return d.gather_params(params, comm)

    for found in d.run_in_threads(f, 3):
        close(found, wanted)


def test_a_jitted_step_does_the_same():
    wanted, _ = trained(optim.adam(0.1), params_of(), batches())

    def f(comm):
        optimizer = d.sharded(optim.adam(0.1), comm)

        @fdbr.jit
        def step(params, state, x):
            grads = fdbr.grad(loss)(params, x)
            updates, state = optimizer.update(grads, state, params)
            return optim.apply_updates(params, updates), state

        params = params_of()
        state = optimizer.init(params)
        for x in batches():
            params, state = step(params, state, np.array_split(x, comm.size)[comm.rank])
        return params

    for found in d.run_in_threads(f, 2):
        close(found, wanted)


def test_each_rank_holds_its_share_of_the_memory():
    params = {"w": np.ones((100, 37)), "b": np.ones(101)}

    def held(x):
        return sum(leaf.nbytes for leaf in tree.leaves(x) if isinstance(leaf, np.ndarray))

    whole = held(optim.adam(0.1).init(params))

    def f(comm):
        own = d.shard_params(params, comm)
        bases = [leaf.base for leaf in tree.leaves(own)]
        assert all(base is None or base.nbytes < 10_000 for base in bases)
        return held(d.sharded(optim.adam(0.1), comm).init(params)), held(own)

    for state, own in d.run_in_threads(f, 4):
        assert state <= whole / 4 + 100
        assert own <= held(params) / 4 + 100


def test_shares_of_different_size_weigh_as_many_as_they_have():
    x = batches()[:1]
    parts = [x[0, :1], x[0, 1:]]
    wanted, _ = trained(optim.sgd(0.1), params_of(), x)

    def f(comm):
        optimizer = d.sharded(optim.sgd(0.1), comm)
        own = parts[comm.rank]
        return trained(optimizer, params_of(), [own], weight=len(own))[0]

    for found in d.run_in_threads(f, 2):
        close(found, wanted)


def test_dtypes_stay_what_they_are():
    def f(comm):
        params = {
            "half": np.ones(3, np.float16),
            "single": np.ones(5, np.float32),
            "z": np.ones(3, complex),
        }
        optimizer = d.sharded(optim.sgd(0.5), comm)
        grads = tree.map(np.ones_like, params)
        return optimizer.update(grads, optimizer.init(params), params)[0]

    for found in d.run_in_threads(f, 2):
        assert [str(x.dtype) for x in tree.leaves(found)] == ["float16", "float32", "complex128"]
        assert all((x == -0.5).all() for x in tree.leaves(found))


@pytest.mark.parametrize(
    "optimizer",
    [
        optim.muon(0.1), optim.shampoo(0.1), optim.adafactor(0.1), optim.clip_by_block_rms(1.0),
        optim.noisy_sgd(0.1, key=random.key(0)),
    ],
)  # fmt: skip
def test_what_needs_whole_arrays_is_refused(optimizer):
    params = {"w": np.ones((200, 130)), "b": np.ones(5)}
    with pytest.raises(ValueError, match=r"fdbr.distributed.sharded: the optimizer needs whole"):
        d.sharded(optimizer, d.serial()).init(params)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="stage must be 1, 2 or 3, got 4"):
        d.sharded(optim.sgd(0.1), d.serial(), stage=4)
    with pytest.raises(ValueError, match="op must be 'mean' or 'sum', got 'max'"):
        d.gather_params(np.ones(2), d.serial(), op="max")
    optimizer = d.sharded(optim.sgd(0.1), d.serial(), stage=3)
    params = d.shard_params(np.ones(2), d.serial())
    with pytest.raises(ValueError, match="give no weight here"):
        optimizer.update(params, optimizer.init(params), params, weight=2)
