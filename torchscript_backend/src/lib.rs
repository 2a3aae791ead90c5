//! TorchScript models on Triton.
