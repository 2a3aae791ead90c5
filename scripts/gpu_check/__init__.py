"""The check of the GPU path on a machine that has one. It imports the standard library, numpy, torch, and MONAI where it is there."""
