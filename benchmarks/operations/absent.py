"""Public operations that are not timed beside PyTorch: why."""

__all__ = ["WITHOUT_COUNTERPART"]

WITHOUT_COUNTERPART: dict[str, str] = {
    "constants": "e inf nan newaxis pi",
    "dtypes": "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 "
    "complex128",
    "functions of dtypes and classes, not of arrays": "can_cast finfo iinfo isdtype result_type",
    "PyTorch has no such function": "accuracy alibi_bias average beta betainc betaln cbrt "
    "correlate convolve erfcinv gamma interp kl_div rel_entr sinusoidal_embedding unique_all "
    "linalg.logm linalg.sqrtm",
    "its windows are drawn: max_pool is timed": "fractional_max_pool",
    "PyTorch has them as parts of its cells alone": "lstm slstm tree_lstm mgu_cell",
    "PyTorch packs sequences instead": "transpose_sequence",
    "PyTorch has no such loss or measure": "absolute_error squared_error squared_difference "
    "log_cosh hinge sigmoid_cross_entropy bernoulli_nll gaussian_nll gaussian_kl_divergence "
    "contrastive triplet cross_covariance decov discriminative_margin_based_clustering_loss "
    "crf1d argmax_crf1d negative_sampling black_out binary_hierarchical_softmax "
    "binary_accuracy precision recall f1_score classification_summary r2_score",
    "PyTorch has no such activation function": "crelu log1mexp maxout sparse_plus "
    "sparse_sigmoid sparsemax squareplus",
    "it is one number for each channel or example: dropout is timed": "drop_path spatial_dropout",
    "it is a product or a sum, which are timed": "bias scale",
    "PyTorch has no such normalisation": "batch_renorm decorrelated_batch_norm standardize",
    "PyTorch has no such random function": "gaussian gaussian_dropout simplified_dropconnect "
    "zoneout",
    "other libraries have it, and PyTorch not": "deform_conv local_conv shift",
    "torchvision has it": "sigmoid_focal_loss",
    "it compares all pairs of classes": "multilabel_margin_loss",
    "PyTorch has no such pooling; torchvision has some": "roi_average_align roi_average_pool "
    "roi_max_align roi_max_pool ps_roi_average_align ps_roi_average_pool ps_roi_max_align "
    "ps_roi_max_pool spatial_pyramid_pooling unpooling",
    "it makes a view of foreign memory": "from_dlpack",
    "its cost is that of the function it calls": "linalg.cg",
    "functions of SciPy that have no program: PyTorch lacks nearly all of them": "special.*",
}
"""Names as in `fdbr.ops`, by the reason; a star stands for all that have no program."""
