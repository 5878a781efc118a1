"""Matrix products on the threads of the compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from conftest import for_any_number_of_threads
from zsl.sparse import sparse_encode
from zsl.sparse.kernels import threads
from zsl.sparse.kernels.products import blas, gram, product
from zsl.sparse.kernels.threads import spread


def factors(rng, dtype, n=601, p=500, m=400):
    # More than the 1e8 multiplications up to which a product is one call of BLAS.
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
    monkeypatch.setattr("zsl.sparse.kernels.products._LARGE", 1)
    assert_allclose(gram(A), small, atol=1e-12 * small.max())


def test_any_number_of_threads_gives_the_same_products(rng):
    A, B = factors(rng, np.float32)
    for_any_number_of_threads(lambda: product(A, B))


def test_not_a_number_and_infinity_pass_through(rng):
    A, B = factors(rng, np.float64)
    A[3, 5], A[4, 6] = np.nan, np.inf
    out = product(A, np.abs(B))
    assert np.isnan(out[3]).all()
    assert (out[4] == np.inf).all()
    assert np.isfinite(np.delete(out, [3, 4], axis=0)).all()


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread has nobody to wait for")
@pytest.mark.parametrize("at_once", [True, False])
def test_no_thread_writes_after_the_call_has_ended(at_once, monkeypatch):
    done, waits = [], []

    def kernel(first, step):
        if first:
            time.sleep(0.5)
            done.append(first)
        elif at_once:
            raise KeyboardInterrupt

    def interrupted(others):
        waits.append(others)
        if len(waits) == 1:  # Ctrl-C arrives while the first thread waits for the others
            raise KeyboardInterrupt
        return wait(others)

    monkeypatch.setattr(threads, "wait", interrupted)
    monkeypatch.setattr(threads.numba, "get_num_threads", lambda: 2)
    with pytest.raises(KeyboardInterrupt):  # with at_once there are two, as where somebody presses Ctrl-C again
        spread(kernel, 2, 1)
    assert done == [1]


@pytest.mark.parametrize("limit", [1, 2])
def test_threads_of_blas_are_as_before(rng, limit):
    A, B = factors(rng, np.float32)
    with threadpool_limits(limit, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        product(A, B)
        assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_the_blas_that_kernels_call_is_found():
    # If scipy's BLAS were missing, every strip would start threads of its own.
    found = {pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert {pool["filepath"] for pool in blas().info() if pool["user_api"] == "blas"} == found


def test_many_threads_leave_the_limit_as_they_found_it(rng):
    # Without a lock, a second thread would save the first thread's limit and restore it last.
    X, D = rng.standard_normal((20, 64)), rng.standard_normal((100, 64))
    with ThreadPoolExecutor(4) as pool:
        before = [p["num_threads"] for p in threadpool_info()]
        list(pool.map(lambda _: sparse_encode(X, D, 5.0), range(120)))
        assert [p["num_threads"] for p in threadpool_info()] == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.slow
def test_forked_and_spawned_workers_compute_the_same(tmp_path):
    # A forked process has none of its parent's threads, and must not wait for them or for a lock that they hold.
    script = tmp_path / "forks.py"
    script.write_text(
        "import multiprocessing, numpy as np\n"
        "from zsl.sparse import sparse_encode\n"
        "from zsl.sparse.kernels.products import one_thread_each\n"
        "rng = np.random.default_rng(0)\n"
        "X, D = rng.standard_normal((50, 30)), rng.standard_normal((60, 30))\n"
        "def work(_):\n"
        "    return float(sparse_encode(X, D, 20.0, solver='lars').gap.max())\n"
        "if __name__ == '__main__':\n"
        "    expected = work(0)\n"
        "    for kind in ('fork', 'spawn'):\n"
        "        with one_thread_each(), multiprocessing.get_context(kind).Pool(1) as pool:\n"
        "            assert pool.map(work, [0])[0] == expected\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)
