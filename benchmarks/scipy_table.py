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

X = np.array([0.3, 0.7, 0.45, 0.9, 0.15, 0.62, 0.8, 0.26])
A = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, 0.4], [0.1, 0.3, 1.8]])
SPD = A @ A.T


def _named(names: str, call: Any) -> dict[str, Any]:
    """The same call of several functions."""
    return dict.fromkeys(names.split(), call)


def _itself(f: Any, x: Any) -> Any:
    return f(x)


def _beside(f: Any, x: Any) -> Any:
    return f(x, X**2)


def _statistic(f: Any, x: Any) -> Any:
    return f(x).statistic


def _compared(f: Any, x: Any) -> Any:
    return f(x, X**2).statistic


def _table(f: Any, x: Any) -> Any:
    return abs(f(x.reshape(2, 4)))


def _curve(f: Any, x: Any) -> Any:
    return f(np.arange(8.0), x)(2.5)


VECTORS: dict[str, dict[str, Any]] = {
    "special": {
        **_named("gammaln erf erfc erfinv expit logit psi ndtr ndtri log_ndtr entr", _itself),
        **_named("i0 i0e i1 i1e j0 k0 y0 ellipk expi exp1 sinc softmax log_softmax", _itself),
        **_named("logsumexp", _itself),
        **_named("jv gammainc gammaincc stdtr chdtr boxcox", lambda f, x: f(1.5, x)),
        **_named("xlogy xlog1py rel_entr kl_div", _beside),
        **_named("polygamma spherical_jn legendre_p", lambda f, x: f(1, x)),
        "zeta": lambda f, x: f(2.5, x),
        "lambertw": lambda f, x: f(x).real,
        "multigammaln": lambda f, x: f(x + 2, 2),
        "betainc": lambda f, x: f(1.5, x + 1, 0.3),
        "jvp": lambda f, x: f(1.5, x),
        "comb": lambda f, x: f(x + 3, 2),
    },
    "fft": {
        **_named("fft ifft rfft hfft ihfft", lambda f, x: abs(f(x))),
        **_named("fftn ifftn rfftn fft2 rfft2 hfft2 irfft2 irfftn", _table),
        "irfft": lambda f, x: f(x[:5]),
        **_named("dct dst idct fftshift ifftshift", _itself),
        "fht": lambda f, x: f(x, 0.1, 0.5),
    },
    "signal": {
        **_named("convolve fftconvolve correlate oaconvolve", _beside),
        **_named("convolve2d correlate2d", lambda f, x: f(x.reshape(2, 4), X[:4].reshape(2, 2))),
        **_named("detrend envelope", _itself),
        "lfilter": lambda f, x: f([0.3, 0.1], [1.0, -0.2], x),
        "filtfilt": lambda f, x: f([0.3, 0.1], [1.0, -0.2], x, padlen=3),
        "savgol_filter": lambda f, x: f(x, 5, 2),
        "hilbert": lambda f, x: abs(f(x)),
        "sosfilt": lambda f, x: f(np.array([[0.2, 0.1, 0.0, 1.0, -0.3, 0.1]]), x),
        "resample": lambda f, x: f(x, 5),
        "resample_poly": lambda f, x: f(x, 2, 1),
        "deconvolve": lambda f, x: f(x, X[:3])[0],
        "freqz": lambda f, x: abs(f(x, worN=4)[1]),
        "freqz_zpk": lambda f, x: abs(f(x[:2], x[2:4], 0.5, worN=4)[1]),
        "gauss_spline": lambda f, x: f(x, 3),
        "medfilt": lambda f, x: f(x, 3),
    },
    "stats": {
        **_named("zscore skew kurtosis moment sem gmean hmean variation entropy gstd", _itself),
        **_named("gzscore kstat kstatvar circmean circvar circstd iqr rankdata", _itself),
        **_named("tmax tmin tmean tstd tvar tsem median_abs_deviation", _itself),
        "pmean": lambda f, x: f(x, 2),
        "quantile": lambda f, x: f(x, 0.3),
        "trim_mean": lambda f, x: f(x, 0.2),
        "zmap": _beside,
        "describe": lambda f, x: f(x).variance,
        **_named("boxcox_llf yeojohnson_llf", lambda f, x: f(0.7, x)),
        **_named("pearsonr spearmanrho ttest_ind ttest_rel bartlett mood levene", _compared),
        **_named("alexandergovern kruskal f_oneway mannwhitneyu", _compared),
        **_named("jarque_bera kurtosistest normaltest skewtest chisquare", _statistic),
        "ttest_1samp": lambda f, x: f(x, 0.2).pvalue,
        "directional_stats": lambda f, x: f(x.reshape(4, 2)).mean_direction,
        "differential_entropy": lambda f, x: f(x, method="vasicek"),
        **_named("norm halfnorm expon logistic cauchy laplace", lambda f, x: f.logpdf(x, x[0] - 1)),
        **_named("gamma t chi2 weibull_min lognorm", lambda f, x: f.cdf(x, 2.5 + x, scale=x + 1)),
        **_named("beta f", lambda f, x: f.pdf(x, 2.5, 3.5)),
        **_named("poisson", lambda f, x: f.logpmf(np.arange(8), x)),
        **_named("binom", lambda f, x: f.cdf(2, 5, x)),
        "multivariate_normal": lambda f, x: f.logpdf(x[:2], X[:2]),
        "Normal": lambda f, x: f(mu=0.1, sigma=1.5).logpdf(x),
    },
    "integrate": {
        **_named("trapezoid cumulative_trapezoid simpson cumulative_simpson", _itself),
        "romb": lambda f, x: f(x[:5]),
        "tanhsinh": lambda f, x: f(lambda t: t * t, 0.0, x).integral,
        "cubature": lambda f, x: f(lambda t: (t * x[0]) ** 2, np.zeros(1), np.ones(1)).estimate,
    },
    "differentiate": {
        **_named("derivative jacobian", lambda f, x: f(lambda t: t**3, x).df),
        "hessian": lambda f, x: f(lambda t: (t**3).sum(0), x[:2]).ddf,
    },
    "interpolate": {
        **_named("CubicSpline PchipInterpolator Akima1DInterpolator AAA", _curve),
        **_named("make_interp_spline make_smoothing_spline interp1d", _curve),
        "RBFInterpolator": lambda f, x: f(X[:, None], x, neighbors=None)(np.array([[0.33]])),
    },
    "ndimage": {
        **_named("gaussian_filter shift zoom", lambda f, x: f(x, 1.5)),
        **_named("uniform_filter maximum_filter", lambda f, x: f(x, 3)),
        **_named("convolve correlate1d", lambda f, x: f(x, X[:3])),
        **_named("sobel laplace mean", _itself),
        "map_coordinates": lambda f, x: f(X, x[None]),
    },
    "optimize": {
        **_named("rosen rosen_der rosen_hess", _itself),
        "rosen_hess_prod": _beside,
        "minimize": lambda f, x: f(lambda y: ((y - x) ** 2).sum(), X).x,
        # No brentq: its C code goes on computing after an error, so which one it reports varies.
        "newton": lambda f, x: f(lambda y: y * y - x[0], 0.5),
    },
    "optimize.elementwise": {
        "find_root": lambda f, x: f(lambda t, a: t**2 - a, (0 * x, 0 * x + 2), args=(x,)).x,
        "find_minimum": lambda f, x: (
            f(lambda t, a: (t - a) ** 2, (0 * x - 1, x / 2, 0 * x + 2), args=(x,)).x
        ),
    },
    "cluster.vq": {"whiten": lambda f, x: f(x.reshape(4, 2))},
    "constants": {"convert_temperature": lambda f, x: f(x, "C", "F")},
    "spatial.distance": {"euclidean": _beside, "cosine": _beside},
    "spatial.transform": {
        "Rotation": lambda f, x: (
            f.from_euler("xyz", x[:3]).apply(x[3:6]) + f.from_quat(x[:4]).inv().as_rotvec()
        ),
        "RigidTransform": lambda f, x: f.from_translation(x[:3]).as_matrix(),
    },
}
MATRICES: dict[str, dict[str, Any]] = {
    "linalg": {
        **{name: lambda f, x: f(x) for name in ("inv", "det", "expm", "logm", "sqrtm", "norm")},
        **{name: lambda f, x: f(x) for name in ("svdvals", "pinv", "eigvalsh", "cholesky")},
        "solve": lambda f, x: f(x, A),
        "solve_triangular": lambda f, x: f(x, A),
        "lstsq": lambda f, x: f(x, A)[0],
        "block_diag": lambda f, x: f(x, A),
        "orthogonal_procrustes": lambda f, x: f(x, A)[0],
        "fiedler": lambda f, x: f(x[0]),
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
        text = [str(error), *getattr(error, "__notes__", ())][-1]
        advice = text[text.find("Use ") :].partition("; or state")[0].rstrip(".")
        return f"refused; {advice}" if text.startswith("scipy.") else f"refused: {_brief(text)}"
    values = [np.asarray(call(f, at + sign * STEP * direction)) for sign in (1, -1)]
    differences = (values[0] - values[1]) / (2 * STEP)
    right = tangent is not None and np.allclose(tangent, differences, rtol=1e-4, atol=1e-5)
    right = right and np.allclose(np.vdot(gradient, direction), differences.real.sum(), rtol=1e-4)
    return "works" if right else "wrong"


def _brief(text: str) -> str:
    return text.splitlines()[0][:100]


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
