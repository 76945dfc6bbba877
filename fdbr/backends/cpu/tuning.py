"""The sizes by which the CPU's library chooses between algorithms, and divides work.

Each field names the program of `benchmarks.tune` that measures it: ``python -m benchmarks tune
NAME`` times that program with the field at other values, and shows which one is the fastest on a
machine.  The values are those of machines with two and with sixteen cores and AVX2.
"""

from typing import Any

import attrs

__all__ = ["TUNING", "Tuning"]


def _size(value: int, case: str) -> Any:
    return attrs.field(default=value, metadata={"case": case})


@attrs.define
class Tuning:
    """The sizes; the comment above each one says what it decides."""

    # --- Kernels in place of NumPy's functions -------------------------------------------

    # Bytes of an array from which on a kernel replaces one pass of NumPy.
    kernel_bytes: int = _size(1 << 20, "exponential")
    # The passes of NumPy that a kernel of a compound operation replaces, or of a derivative alone.
    kernel_passes: int = _size(8, "leaky rectifier")
    # The same for heavy operations, reductions in several steps, and indices of single elements:
    # from 37 kB on a launch takes less time than the passes.  The activations of research/pinn, of
    # 32 kB, stay with NumPy, as compiling three kernels takes longer than its first calls.
    heavy_passes: int = _size(28, "softplus")
    # Columns of a matrix below which an elementwise kernel masks its vectors.
    narrow_columns: int = _size(64, "broadcast product")
    # Additions from which on an eager kernel is divided among threads.
    kernel_thread_work: int = _size(1 << 21, "exponential")
    # Bytes of an array from which on an operation without a kernel is divided among threads.
    divide_bytes: int = _size(1 << 21, "erfinv")
    # Bytes that a thread computes at a time then.
    divide_share: int = _size(1 << 20, "erfinv")
    # Elements from which on one more call of NumPy is faster than a slow one: of sorts,
    # searches, rolls, transforms.
    extra_pass: int = _size(1 << 12, "sort")
    # Elements from which on several passes of NumPy are faster than one slow loop.
    formula_elements: int = _size(64, "hypotenuse")
    # The same for `erf`, beside SciPy's loop.
    erf_elements: int = _size(1 << 7, "erf")
    # The same for the logistic function, beside SciPy's loop.
    sigmoid_elements: int = _size(1 << 9, "sigmoid")
    # The same for powers with half-integer exponents.
    root_elements: int = _size(1 << 8, "power")
    # The same for the normal distribution function, beside SciPy's loop.
    ndtr_elements: int = _size(1 << 10, "gelu")
    # Elements from which on masks of bits are faster than `numpy.where`.
    where_elements: int = _size(1 << 13, "where")
    # Bytes of logits from which on threads share the examples.
    logits_bytes: int = _size(1 << 22, "softmax")
    # Bytes of logits that a thread computes at a time.
    logits_share: int = _size(1 << 19, "softmax")
    # Numbers that Python sums faster than NumPy.
    few_numbers: int = _size(1 << 6, "softmax")
    # Classes below which NumPy reduces faster along the first axis than along the last.
    few_classes: int = _size(64, "softmax")

    # --- Sums and scans ------------------------------------------------------------------

    # Elements from which on a product with ones is faster than NumPy's sum.
    blas_sum: int = _size(1 << 14, "sum")
    # Elements of a row from which on such a product pays.
    blas_sum_row: int = _size(1 << 5, "sum of rows")
    # Rows of a matrix that one such product sums.
    blas_sum_rows: int = _size(1 << 12, "sum of columns")
    # Elements from which on a kernel scans faster than NumPy.
    scan_kernel: int = _size(1 << 13, "cumulative product")
    # Elements from which on NumPy's scans are slower than steps over rows.
    scan_elements: int = _size(1 << 14, "cumulative sum")
    # Elements of a row from which on a step over it costs more than the call; and steps from
    # which on narrower recurrences are cut into blocks.
    scan_row: int = _size(64, "cumulative product")
    # Elements from which on a product is computed in lanes: NumPy's waits for each multiplication.
    product_lanes: int = _size(1 << 11, "product of all")
    # Elements of a reduced row from which on a kernel pays.
    reduced_row: int = _size(16, "max of rows")
    # Bytes of a reduced row below which vectors run across rows.
    reduced_bytes: int = _size(1 << 7, "max of rows")
    # Neighbouring results below which vectors are nearly empty.
    reduced_columns: int = _size(16, "max of columns")
    # Elements of a reduction from which on several threads pay.
    reduced_thread: int = _size(1 << 16, "max of rows")

    # --- Copies, indices and sorts -------------------------------------------------------

    # Bytes of a copy that are worth waking a thread.
    copy_share: int = _size(1 << 16, "copy")
    # Bytes of a row from which on copying rows is faster than NumPy's loop.
    copy_row: int = _size(1 << 8, "concatenation")
    # Elements of a matrix from which on it is transposed by strips of rows.
    strip_elements: int = _size(1 << 14, "transpose")
    # Elements of a copy with examples last from which on several threads pay.
    batch_last_thread: int = _size(1 << 16, "convolution")
    # Elements from which on flat indices are faster than NumPy's indexing.
    flat_indices: int = _size(1 << 11, "indexing")
    # Elements that the largest index array has at least for that.
    flat_index_size: int = _size(1 << 5, "indexing")
    # Flat indices that are computed at a time.
    flat_piece: int = _size(1 << 15, "scatter")
    # Elements of a row from which on a sparse product adds rows faster.
    sparse_row: int = _size(8, "scatter")
    # Matrices of a stack up to which one sparse product for each is faster.
    sparse_stack: int = _size(64, "scatter")
    # Size of an index array from which on a kernel reads the elements.
    gather_index: int = _size(1 << 6, "gather")
    # Elements that are worth waking a thread.
    gather_part: int = _size(1 << 14, "gather")
    # Elements that a thread sorts at least.
    sort_share: int = _size(1 << 15, "argsort")
    # Largest elements up to which one search for each is faster than a partition.
    few_largest: int = _size(16, "largest")
    # Elements from which on several threads transform.
    fft_thread: int = _size(1 << 15, "transform")
    # Blocks of random words that are made at a time.
    philox_blocks: int = _size(1 << 13, "random")

    # --- Products ------------------------------------------------------------------------

    # Multiplications of a product up to which the BLAS uses one thread.
    blas_alone: int = _size(1 << 18, "product")
    # The same for products with a vector.
    blas_alone_vector: int = _size(9216, "product with vector")
    # Multiplications from which on several threads pay.
    matmul_thread: int = _size(1_000_000, "product")
    # Overhead of a tile for each step of its sum, in multiplications.
    matmul_tile_step: int = _size(4, "product")
    # Bytes of the second operand that stay in a processor's cache.
    matmul_panel: int = _size(1 << 17, "product")
    # Rows and columns of a matrix up to which a kernel replaces the BLAS.
    small_side: int = _size(128, "batched products")
    # Elements of a small matrix up to which threads have too little to do.
    small_thread: int = _size(1 << 14, "batched products")
    # Rows up to which reading the second operand takes as long as multiplying.
    small_rows: int = _size(32, "batched products")
    # Elements of a matrix that stays in the processor's cache.
    small_cached: int = _size(1 << 18, "batched products")
    # Products for which copying their common second operand pays.
    small_copies: int = _size(8, "batched products")
    # Columns below which vectors are nearly empty.
    small_columns: int = _size(16, "batched products")
    # Multiplications of small products from which on several threads pay.
    small_thread_work: int = _size(4_000_000, "batched products")
    # Elements of an outer product from which on, and by which, threads share it.
    outer_share: int = _size(1 << 19, "outer product")
    # Elements of one outer product from which on the BLAS starts threads itself.
    outer_blas: int = _size(1 << 17, "outer product")
    # Elements below which fewer calls of NumPy are faster.
    few_calls: int = _size(1 << 10, "exponential")

    # --- Convolutions, pooling and recurrent networks ------------------------------------

    # Bytes of columns that are made at a time.
    conv_columns: int = _size(1 << 22, "convolution")
    # Channels of results in a group up to which tiles of products are mostly empty.
    conv_results: int = _size(4, "convolution")
    # Channels that are summed up to which windows are read without columns then.
    conv_inputs: int = _size(32, "convolution")
    # The same with strides, where neighbouring windows are not adjacent.
    conv_apart: int = _size(4, "convolution")
    # Multiplications below which the definition takes as long as a kernel.
    conv_kernel: int = _size(1 << 18, "convolution")
    # Bytes of a block of a correlation, which stays in the L2 cache of a core.
    conv_block: int = _size(3 << 16, "convolution")
    # Taps of a block at most.
    conv_depth: int = _size(256, "convolution")
    # Bytes of a row of a block, which stays in the L1 cache.
    conv_row: int = _size(1 << 12, "convolution")
    # Multiplications from which on several threads pay.
    conv_thread: int = _size(1 << 20, "convolution")
    # Weights from which on several threads pack them.
    conv_weights: int = _size(1 << 15, "convolution")
    # Windows of an example below which vectors run over examples.
    conv_windows: int = _size(128, "convolution")
    # Windows along the last axis below which vectors are mostly empty.
    conv_shortest: int = _size(8, "convolution")
    # Elements of a pooling from which on several threads pay.
    pool_thread: int = _size(200_000, "pooling")
    # Units of work for each thread, so that a late thread delays little.
    thread_units: int = _size(2, "product")
    # Multiplications of a recurrent step up to which one thread computes it.
    rnn_alone: int = _size(1 << 17, "lstm")

    # --- Small matrices ------------------------------------------------------------------

    # Matrices of a stack from which on a kernel factorizes them.
    stack_kernel: int = _size(64, "batched inverse")
    # Rows of a triangle up to which a kernel is faster than LAPACK.
    stack_triangle: int = _size(128, "batched inverse")
    # Multiplications that are worth waking a thread.
    stack_part: int = _size(1 << 13, "batched inverse")
    # Matrices of a stack times side**3 from which on threads share it.
    stack_divided: int = _size(1 << 21, "batched svd")
    # Singular values up to which LAPACK's least squares are as fast as QR.
    svd_side: int = _size(16, "least squares")

    # --- Compiled programs ---------------------------------------------------------------

    # Additions of a kernel from which on several threads pay.
    program_thread: int = _size(500_000, "chain")


TUNING = Tuning()
"""The sizes that the library reads, at every call."""
