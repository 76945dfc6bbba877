"""Weights of models in and out: PyTorch's, Chainer's and ONNX's files."""
