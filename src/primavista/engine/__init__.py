"""Code that exists only for speed: features, CUDA graphs, Triton kernels, ONNX Runtime."""
