"""What `import fdbr` does not load is loaded by its first use, completely and once."""

import os
import subprocess
import sys

import pytest

# Loading them takes long, and what needs them is rarely the first line of a program.
HEAVY = {
    *("scipy", "llvmlite", "PIL", "matplotlib", "safetensors", "tqdm", "rich", "hypothesis"),
    *("fdbr.compiler", "fdbr.control_flow", "fdbr.solvers", "fdbr.backends.cpu"),
    *("fdbr.backends.cuda", "fdbr.ops.nn", "fdbr.ops.special", "fdbr.ops.on_demand"),
    *("fdbr.debug", "fdbr.distributed", "fdbr.distributions", "fdbr.nn", "fdbr.testing"),
    *("fdbr.train", "fdbr.vision"),
}


def run(program: str) -> str:
    """Return what a program prints in a process of its own, which has imported nothing else."""
    head = "import sys, fdbr, numpy as np\nfrom fdbr import ops\n"
    head += f"def loaded(): return sorted(set(sys.modules) & {HEAVY!r})\n"
    path = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", head + program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_importing_fdbr_loads_neither_compiler_nor_kernels_nor_scipy():
    assert run("print(loaded())") == "[]"


def test_importing_fdbr_applies_no_operation():
    """An operation would load the kernels of the CPU."""
    assert run("print(type(ops.sin.primitive.host).__name__)") == "_Placeholder"


def test_the_first_operation_on_a_small_array_loads_neither_llvm_nor_passes():
    program = """
fdbr.grad(lambda x: (ops.tanh(x) * x).sum())(np.ones(3))
print([name for name in sys.modules if name.startswith(("llvmlite", "scipy"))])
print([name for name in sys.modules if name.startswith("fdbr.compiler.")])
"""
    names = ["fdbr.compiler.ir", "fdbr.compiler.ir.op", "fdbr.compiler.ir.program"]
    assert run(program) == f"[]\n{names}"


@pytest.mark.parametrize(
    "first",
    [
        "fdbr.grad(lambda x: x * x)(1.0)",
        "fdbr.jit(lambda x: ops.softplus(x))(np.ones(2))",
        "ops.astype(np.ones(3), 'float32')",  # calls a routine, not a primitive
    ],
)
def test_every_first_use_installs_all_implementations(first):
    program = """
from fdbr.core.primitive import registry
print([p.name for p in registry.values() if type(p.host).__name__ == "_Placeholder"])
"""
    assert run(f"{first}\n{program}") == "[]"


@pytest.mark.parametrize(
    "use",
    [
        "ops.var(x)",
        "ops.astype(x, 'float64')",
        "fdbr.grad(lambda x: ops.sum(ops.gelu(x)))(x)",
    ],
)
def test_a_first_use_computes_what_a_later_use_computes(use):
    program = f"""
x = np.linspace(-3, 3, 100_003).astype("float32")
first = {use}
print(first.tobytes() == ({use}).tobytes())
"""
    assert run(program) == "True"


def test_threads_whose_first_use_coincides_see_complete_modules():
    program = """
import threading
sys.setswitchinterval(1e-6)
x = np.linspace(-3, 3, 20_000)
uses = [
    lambda: ops.sum(ops.tanh(x)), lambda: fdbr.jit(lambda x: x * 2)(x[:3]),
    lambda: ops.conv(np.ones((1, 1, 8, 8)), np.ones((1, 1, 3, 3))),
    lambda: ops.special.zeta(2.5, 1.0),
    lambda: fdbr.grad(lambda x: (ops.softplus(x) ** 2).sum())(x[:9]),
    lambda: fdbr.vision.transforms, lambda: fdbr.distributions.Normal, lambda: fdbr.scan,
    lambda: fdbr.train.optim.adam, lambda: fdbr.nn.Linear, lambda: ops.linalg.cg,
]
barrier, failed = threading.Barrier(2 * len(uses)), []
def work(use):
    barrier.wait()
    try:
        use()
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=work, args=(use,)) for use in uses * 2]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(failed)
"""
    assert run(program) == "[]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_waits_until_another_thread_has_loaded_the_kernels():
    program = """
import os, threading
from fdbr.core import loading
begun, going = threading.Event(), threading.Event()
class Finder:  # has the thread wait in the middle of loading
    def find_spec(self, name, *_):
        if name == "fdbr.backends.cpu.library.elementwise":
            begun.set()
            going.wait(60)
sys.meta_path.insert(0, Finder())
thread = threading.Thread(target=lambda: ops.sum(np.ones(3)))
thread.start()
begun.wait(60)
threading.Timer(0.1, going.set).start()
child = os.fork()
if not child:
    os._exit(int(ops.sum(np.ones(3))))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    assert run(program) == "3"


def test_a_jitted_function_may_be_the_first_to_use_a_part():
    program = """
@fdbr.jit(check=1)
def f(x):
    total, _ = fdbr.scan(lambda c, a: (c + ops.softplus(a), None), 0.0, x)
    density = fdbr.distributions.Normal(0.0, 1.0).log_prob(x)
    return total + density.sum() + ops.special.zeta(2.5, 1.0)
values = [float(f(np.linspace(0, 1, 5))) for _ in range(4)]
print(len(set(values)), len(f.programs()))
"""
    assert run(program) == "1 1"


def test_names_that_are_loaded_later_are_ordinary_names():
    program = """
import pickle
ops.hinge = "replaced"
before = dir(ops), dir(fdbr)
from fdbr import jit, vision
from fdbr.ops import softplus, special
assert (dir(ops), dir(fdbr)) == before and "softplus" in before[0] and "jit" in before[1]
assert sorted(ops.__all__) == dir(ops) and sorted(fdbr.__all__) == dir(fdbr)
assert vision is fdbr.vision is sys.modules["fdbr.vision"] and jit is fdbr.jit is fdbr.compiler.jit
assert softplus is ops.softplus and special.erf is ops.erf
for value in (softplus, jit, fdbr.minimize, ops.linalg.cg):
    assert pickle.loads(pickle.dumps(value)) is value
assert ops.hinge == "replaced"
space = {}
exec("from fdbr.ops import *", space)
assert space.keys() - {"__builtins__"} == set(ops.__all__)
print("as ever")
"""
    assert run(program) == "as ever"


def test_the_error_for_a_missing_name_says_the_name():
    program = """
import fdbr.compiler
for name in ("fdbr", "fdbr.ops", "fdbr.compiler", "fdbr.ops.linalg"):
    try:
        sys.modules[name].nothing_such
    except AttributeError as error:
        print(error.name, error)
"""
    modules = ("fdbr", "fdbr.ops", "fdbr.compiler", "fdbr.ops.linalg")
    expected = [f"nothing_such module {name!r} has no attribute 'nothing_such'" for name in modules]
    assert run(program).splitlines() == expected
