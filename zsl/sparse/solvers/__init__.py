"""The LASSO solvers: each module is one, named as ``conf/solver`` names it."""
