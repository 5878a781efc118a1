"""The LASSO solvers: each module is one solver, with a function ``solve`` and a file of its name in ``conf/solver``.

``solve(X, D, lam, *, init, tol, max_iter) -> Codes`` gets checked, contiguous arrays of one dtype and works as
:func:`zsl.sparse.sparse_encode` describes.
"""
