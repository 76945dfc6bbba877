"""Layers in plain NumPy, which take their weights by ChainerCV's names."""

import numpy as np


def conv(x, w, b=None, stride=1, padding=0, dilation=1):
    """Correlate by one product for each element of the kernel."""
    py, px = padding if isinstance(padding, tuple) else (padding, padding)
    x = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    kh, kw = w.shape[2:]
    height = (x.shape[2] - dilation * (kh - 1) - 1) // stride + 1
    width = (x.shape[3] - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((len(x), len(w), height, width))
    for i in range(kh):
        for j in range(kw):
            top, left = i * dilation, j * dilation
            part = x[:, :, top : top + stride * (height - 1) + 1 : stride]
            part = part[:, :, :, left : left + stride * (width - 1) + 1 : stride]
            out += np.einsum("oc,nchw->nohw", w[:, :, i, j], part)
    return out if b is None else out + b[:, None, None]


def norm(x, weights, name, eps):
    """Normalise by the running statistics."""
    mean, var, gamma, beta = (
        weights[f"{name}/{part}"][:, None, None]
        for part in ("avg_mean", "avg_var", "gamma", "beta")
    )
    return (x - mean) / np.sqrt(var + eps) * gamma + beta


def unit(x, weights, name, *, eps=2e-5, negative_slope=0.1, act=True, **settings):
    """Apply ChainerCV's ``Conv2DBNActiv``, padded to keep the size."""
    w = weights[f"{name}/conv/W"]
    settings.setdefault("padding", w.shape[2] // 2)
    x = norm(conv(x, w, **settings), weights, f"{name}/bn", eps)
    return np.where(x > 0, x, negative_slope * x) if act else x


def pool(x, size, stride, after=0):
    """Take the maxima of windows that extend over the edge as far as is needed."""
    height, width = (-(-(n + after - size) // stride) + 1 for n in x.shape[2:])
    ends = [(n - 1) * stride + size for n in (height, width)]
    extra = [(0, max(end - n, 0)) for end, n in zip(ends, x.shape[2:], strict=True)]
    x = np.pad(x, ((0, 0), (0, 0), *extra), constant_values=-np.inf)
    last = (height - 1) * stride + 1, (width - 1) * stride + 1
    parts = [
        x[:, :, i : i + last[0] : stride, j : j + last[1] : stride]
        for i in range(size)
        for j in range(size)
    ]
    return np.max(parts, axis=0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def iou(a, b):
    """Return the overlap of two boxes."""
    h = max(min(a[2], b[2]) - max(a[0], b[0]), 0)
    w = max(min(a[3], b[3]) - max(a[1], b[1]), 0)
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return h * w / (sum(areas) - h * w)


def suppressed(boxes, scores, threshold):
    """Return the indices that non-maximum suppression keeps."""
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if all(iou(boxes[i], boxes[j]) < threshold for j in kept):
            kept.append(i)
    return kept


def best(boxes, scores, score_threshold, nms_threshold):
    """Return boxes, labels and scores of an image; ``boxes`` may be one for each class."""
    found = []
    for label in range(scores.shape[1]):
        own = boxes if boxes.ndim == 2 else boxes[:, label]
        high = np.flatnonzero(scores[:, label] > score_threshold)
        for i in suppressed(own[high], scores[high, label], nms_threshold):
            found += [(scores[high[i], label], label, own[high[i]])]
    found.sort(key=lambda entry: -entry[0])
    return found


def norm_names(name, channels):
    """Return the names and shapes of a normalisation."""
    shapes = {f"{name}/{part}": (channels,) for part in ("gamma", "beta", "avg_mean", "avg_var")}
    return {**shapes, f"{name}/N": ()}


def unit_names(name, outputs, inputs, kernel):
    """Return the names and shapes of a ``Conv2DBNActiv``."""
    return {
        f"{name}/conv/W": (outputs, inputs, kernel, kernel),
        **norm_names(f"{name}/bn", outputs),
    }


def layer_names(name, *shape):
    """Return the names and shapes of a layer with a bias."""
    return {f"{name}/W": shape, f"{name}/b": shape[:1]}


def write_npz(path, shapes, seed=0):
    """Write random weights under ChainerCV's names, and return them."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in shapes.items():
        if name.endswith("/N"):
            arrays[name] = np.array(3)
        elif name.endswith(("avg_var", "gamma")):
            arrays[name] = rng.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            fan = np.prod(shape[1:]) if len(shape) > 1 else 10
            arrays[name] = (rng.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
    np.savez(path, **arrays)
    return arrays
