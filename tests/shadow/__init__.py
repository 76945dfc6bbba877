"""An array module that behaves as CuPy does and needs no GPU.

On a machine without a GPU, code that takes its array module from its arguments and code that
calls NumPy by name look the same.  Here they do not: a shadow array holds a NumPy array and
refuses every way of mixing with NumPy that CuPy refuses, so an op that passes its tests with
shadow arrays has used nothing but the functions of its arguments' own module.

What is copied from CuPy 14:

- no implicit conversion: ``np.asarray(a)`` raises TypeError, ``a.get()`` converts;
- no NumPy arrays as operands or arguments, not even 0-d ones; Python and NumPy scalars do;
- NumPy's ufuncs on its arrays are handed to its own, and so are the operators with operands of
  other classes, which are asked by NumPy's protocol then;
- reductions and element access give 0-d arrays, never scalars;
- no write protection: there is no ``setflags`` and no ``flags.writeable``;
- a 0-d array is no index (``range(a)``, ``[...][a]``): there is no ``__index__``;
- index arrays wrap around where they are out of range; of several values written to one place
  any may stay: the first of them in one call, the last in the next;
- ``add.at``, ``maximum.at`` and ``minimum.at`` take few dtypes, and the extremes of floating ones
  go through float32 and skip NaN;
- ``convolve`` of floating numbers goes through the Fourier transform;
- the logical functions take no complex numbers, ``reduce`` and ``accumulate`` are those of sums
  and products, ``from_dlpack`` takes no device and nothing from the host;
- linear algebra gives NaN where NumPy's raises, unless ``shadowx.errstate(linalg="raise")`` says
  otherwise;
- ``shadowx`` has what ``cupyx`` has of SciPy; its ``solve_triangular`` casts the right side to
  the dtype of the matrix;
- there are two devices (``shadow.module.cuda.Device``): an array lies on the one that was current
  when it was made, and an operation on an array of another than the current one is an error;
- elementwise kernels in CUDA C run, compiled for the host, where there is a C++ compiler;
- what CuPy does not have is missing here too (see `_ABSENT` in ``modules.py``).

Stricter than CuPy: NumPy's functions that are no ufuncs refuse shadow arrays, where CuPy lets
them through, and index arrays must be shadow arrays.  More lenient: ``__array_namespace__``
answers.

``nccl.NCCL`` stands in for ``cupy.cuda.nccl`` between threads; nothing else waits for a stream.

`counting` counts the kernels that CuPy would launch, and how often the host would wait for them.
"""

from typing import Any

import numpy as np

from shadow.arrays import Array
from shadow.devices import Device, counting
from shadow.modules import beside, module

__all__ = ["Array", "Device", "asarray", "beside", "counting", "module", "to_numpy"]


def asarray(data: Any) -> Array:
    """A shadow array with the elements of a NumPy array."""
    return Array(np.array(data))


def to_numpy(array: Any) -> Any:
    """A NumPy array with the elements of a shadow array; anything else as it is."""
    return array.get() if isinstance(array, Array) else array
