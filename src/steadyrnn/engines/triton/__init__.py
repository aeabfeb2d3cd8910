"""Kernels in Triton: every cell, any size, one program per tile of rows; they also run in Triton's interpreter."""
