"""Sparse coding and dictionary updates."""

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
