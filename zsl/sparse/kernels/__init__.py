"""Compiled (numba) kernels of sparse coding, and matrix products on several threads."""
