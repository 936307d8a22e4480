"""How it is computed: frames become tensors and features, by CUDA graphs, kernels or ONNX."""
