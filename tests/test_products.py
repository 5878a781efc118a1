"""Matrix products on numba's threads."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from zsl.sparse.products import _SMALL, blas, gram, product


def factors(rng, dtype, n=601, p=500, m=400):
    assert n * p * m > _SMALL
    return rng.standard_normal((n, p)).astype(dtype), rng.standard_normal((p, m)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 601])
def test_products_are_those_of_integers(rng, dtype, size):
    # Sums of products of small integers are exact, in any order.
    A, B = (np.rint(3 * M) for M in factors(rng, dtype))
    exact = A[:size].astype(np.int64) @ B.astype(np.int64)
    assert product(A[:size], B).dtype == dtype
    assert_array_equal(product(A[:size], B), exact)
    assert_array_equal(product(A[:size], np.asfortranarray(B)), exact)
    assert_array_equal(gram(A[:size]), A[:size].astype(np.int64) @ A[:size].T.astype(np.int64))


def test_large_gram_matrices_agree_with_small_ones(rng, monkeypatch):
    A, _ = factors(rng, np.float64)
    small = gram(A)
    monkeypatch.setattr("zsl.sparse.products._LARGE", 1)
    assert_allclose(gram(A), small, atol=1e-12 * small.max())


def test_any_number_of_threads_gives_the_same_products(rng):
    A, B = factors(rng, np.float32)
    threads = numba.get_num_threads()
    results = []
    try:
        for n in range(1, threads + 1):
            numba.set_num_threads(n)
            results.append(product(A, B))
    finally:
        numba.set_num_threads(threads)
    for result in results[1:]:
        assert_array_equal(results[0], result)


def test_not_a_number_and_infinity_pass_through(rng):
    A, B = factors(rng, np.float64)
    A[3, 5], A[4, 6] = np.nan, np.inf
    out = product(A, np.abs(B))
    assert np.isnan(out[3]).all()
    assert (out[4] == np.inf).all()
    assert np.isfinite(np.delete(out, [3, 4], axis=0)).all()


@pytest.mark.parametrize("limit", [1, 2])
def test_threads_of_blas_are_as_before(rng, limit):
    A, B = factors(rng, np.float32)
    with threadpool_limits(limit, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        product(A, B)
        assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_the_blas_that_numba_calls_is_found():
    # Were scipy's not among them, every strip would start threads of its own.
    found = {pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert {pool["filepath"] for pool in blas().info() if pool["user_api"] == "blas"} == found
