"""Which of SciPy's functions are differentiated: the table of docs/scipy.md.

    python -m benchmarks.scipy_table          # writes the table into docs/scipy.md
    python -m benchmarks.scipy_table --raw    # one line a function, for this process alone

Each function is called on a traced array, and its derivative compared with differences of
SciPy's own values; once as SciPy is, once with ``SCIPY_ARRAY_API=1`` in the environment.
"""

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parent.parent / "docs" / "scipy.md"
BEGIN, END = "<!-- made by python -m benchmarks.scipy_table -->", "<!-- end -->"
STEP = 1e-6

X = np.array([0.3, 0.7, 0.45, 0.9, 0.15, 0.6, 0.8, 0.25])
A = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.1, 0.3, 1.8]])
SPD = A @ A.T

VECTORS: dict[str, dict[str, Any]] = {
    "special": {
        **{name: lambda f, x: f(x) for name in ("gammaln", "erf", "expit", "j0", "ellipk", "expi")},
        **{name: lambda f, x: f(x) for name in ("logsumexp", "softmax", "log_softmax")},
        **{name: lambda f, x: f(1.5, x) for name in ("jv", "gammainc", "stdtr", "chdtr", "boxcox")},
        **{name: lambda f, x: f(1, x) for name in ("polygamma", "spherical_jn", "legendre_p")},
        "lambertw": lambda f, x: f(x).real,
        "multigammaln": lambda f, x: f(x + 2, 2),
        "betainc": lambda f, x: f(1.5, x + 1, 0.3),
        "jvp": lambda f, x: f(1.5, x),
        "comb": lambda f, x: f(x + 3, 2),
    },
    "fft": {
        **{name: lambda f, x: abs(f(x)) for name in ("fft", "ifft", "rfft", "hfft", "ihfft")},
        "irfft": lambda f, x: f(x[:5]),
        **{name: lambda f, x: f(x) for name in ("dct", "dst", "fftshift")},
    },
    "signal": {
        **{name: lambda f, x: f(x, X) for name in ("convolve", "fftconvolve", "correlate")},
        **{name: lambda f, x: f(x, X) for name in ("oaconvolve",)},
        "lfilter": lambda f, x: f([0.3, 0.1], [1.0, -0.2], x),
        "savgol_filter": lambda f, x: f(x, 5, 2),
        "detrend": lambda f, x: f(x),
        "hilbert": lambda f, x: abs(f(x)),
        "sosfilt": lambda f, x: f(np.array([[0.2, 0.1, 0.0, 1.0, -0.3, 0.1]]), x),
        "resample": lambda f, x: f(x, 5),
    },
    "stats": {
        **{name: lambda f, x: f(x) for name in ("zscore", "skew", "kurtosis", "moment", "sem")},
        **{name: lambda f, x: f(x) for name in ("gmean", "hmean", "variation", "entropy")},
        "pmean": lambda f, x: f(x, 2),
        "tmean": lambda f, x: f(x),
        "iqr": lambda f, x: f(x),
        "pearsonr": lambda f, x: f(x, X**2).statistic,
        "ttest_1samp": lambda f, x: f(x, 0.2).statistic,
        "ttest_ind": lambda f, x: f(x, X**2).pvalue,
        "norm": lambda f, x: f.logpdf(x),
        "gamma": lambda f, x: f.cdf(x, 2.5),
        "Normal": lambda f, x: f(mu=0.1, sigma=1.5).logpdf(x),
        "differential_entropy": lambda f, x: f(x, method="vasicek"),
    },
    "integrate": {
        **{name: lambda f, x: f(x) for name in ("trapezoid", "simpson", "cumulative_trapezoid")},
        "cumulative_simpson": lambda f, x: f(x),
        "tanhsinh": lambda f, x: f(lambda t: t * t, 0.0, x).integral,
        "cubature": lambda f, x: f(lambda t: (t * x[0]) ** 2, np.zeros(1), np.ones(1)).estimate,
    },
    "interpolate": {
        "CubicSpline": lambda f, x: f(np.arange(8.0), x)(2.5),
        "PchipInterpolator": lambda f, x: f(np.arange(8.0), x)(2.5),
        "AAA": lambda f, x: f(np.arange(8.0), x)(2.5),
        "make_interp_spline": lambda f, x: f(np.arange(8.0), x)(2.5),
    },
    "ndimage": {
        "gaussian_filter": lambda f, x: f(x, 1.0),
        "convolve": lambda f, x: f(x, X[:3]),
        "zoom": lambda f, x: f(x, 2.0),
    },
    "optimize": {
        "rosen": lambda f, x: f(x),
        "rosen_der": lambda f, x: f(x),
        "minimize": lambda f, x: f(lambda y: ((y - x) ** 2).sum(), X).x,
        "brentq": lambda f, x: f(lambda y: y - x[0], -1, 2),
    },
    "cluster.vq": {"whiten": lambda f, x: f(x.reshape(4, 2))},
    "spatial.distance": {"euclidean": lambda f, x: f(x, X**2), "cosine": lambda f, x: f(x, X**2)},
}
MATRICES: dict[str, dict[str, Any]] = {
    "linalg": {
        **{name: lambda f, x: f(x) for name in ("inv", "det", "expm", "logm", "sqrtm", "norm")},
        **{name: lambda f, x: f(x) for name in ("svdvals", "pinv", "eigvalsh", "cholesky")},
        "solve": lambda f, x: f(x, A),
        "solve_triangular": lambda f, x: f(x, A),
        "lstsq": lambda f, x: f(x, A)[0],
        "block_diag": lambda f, x: f(x, A),
        "toeplitz": lambda f, x: f(x[0]),
    }
}


def calls() -> list[tuple[str, Any, Any]]:
    """The name of each function, how it is called, and on which array."""
    return [
        (f"{module}.{name}", call, at)
        for table, at in ((VECTORS, X), (MATRICES, SPD))
        for module, functions in table.items()
        for name, call in functions.items()
    ]


def state(name: str, call: Any, at: Any) -> str:
    """``works``, or why not: the end of the message."""
    import fdbr

    module, _, function = name.rpartition(".")
    f = getattr(importlib.import_module(f"scipy.{module}"), function, None)
    if f is None:
        return "not in this SciPy"
    direction = np.cos(np.arange(at.size)).reshape(at.shape)
    try:
        tangent = fdbr.jvp(lambda x: call(f, x), (at,), (direction,))[1]
        gradient = fdbr.grad(lambda x: fdbr.ops.sum(fdbr.ops.real(call(f, x))))(at)
    except Exception as error:  # whatever it is, the function does not work
        text = str(error)
        start = text.find("Use ") if text.startswith("scipy.") else -1
        return "refused; " + text[start:].rstrip(".") if start >= 0 else f"refused: {_brief(text)}"
    values = [np.asarray(call(f, at + sign * STEP * direction)) for sign in (1, -1)]
    differences = (values[0] - values[1]) / (2 * STEP)
    right = tangent is not None and np.allclose(tangent, differences, rtol=1e-4, atol=1e-6)
    right = right and np.allclose(np.vdot(gradient, direction), differences.real.sum(), rtol=1e-4)
    return "works" if right else "wrong"


def _brief(text: str) -> str:
    return "by name" if text.startswith("scipy.") else text.splitlines()[0][:100]


def states(array_api: bool) -> dict[str, str]:
    """The state of every function, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "SCIPY_ARRAY_API"}
    if array_api:
        environment["SCIPY_ARRAY_API"] = "1"
    command = [sys.executable, "-m", "benchmarks.scipy_table", "--raw"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(line.split("\t") for line in done.stdout.splitlines())


def table() -> str:
    """The table, in Markdown."""
    plain, with_api = states(False), states(True)
    lines = ["| function | as it is | with `SCIPY_ARRAY_API=1` |", "|---|---|---|"]
    for name, found in plain.items():
        lines.append(f"| `scipy.{name}` | {found} | {with_api[name]} |")
    return "\n".join(lines)


def main() -> None:
    """Write the table, or with ``--raw`` what it is made of."""
    warnings.simplefilter("ignore")
    if "--raw" in sys.argv:
        for name, call, at in calls():
            print(name, state(name, call, at), sep="\t")
        return
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
