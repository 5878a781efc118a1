"""Sparse coding and dictionary learning: the LASSO problem of Eq. (5), solvers for it, and dictionary updates.

:func:`sparse_encode` is the entry point. The compiled kernels know this one problem alone, for speed.
"""

from zsl.sparse.encode import Encoder, solver_names, sparse_encode
from zsl.sparse.problem import Codes, duality_gap, lambda_max, objective, soft_threshold

__all__ = [
    "Codes",
    "Encoder",
    "duality_gap",
    "lambda_max",
    "objective",
    "soft_threshold",
    "solver_names",
    "sparse_encode",
]
