"""Parts that are there for speed alone: features, CUDA graphs, Triton kernels, ONNX Runtime."""
