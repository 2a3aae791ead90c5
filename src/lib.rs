//! Spleen segmentation as a native Triton backend.
