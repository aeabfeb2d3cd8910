"""Kernels in CUDA, compiled when they are first run: nothing is built at installation."""
