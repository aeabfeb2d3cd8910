"""Compiling and launching kernels on a GPU, device facts, and calls into torch's private API. It knows no cell."""
