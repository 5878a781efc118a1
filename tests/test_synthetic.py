"""Simulated data: it is what its docstring says."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.data.readers import synthetic
from zsl.errors import UserError


def test_draws_from_the_model_it_states():
    X, y, Z, truth = synthetic.draw(n_classes=7, n_images=50, p=30, q=12, n_atoms=20, n_nonzero=3, noise=0.0)
    assert_allclose(X, truth.A @ truth.Dx)
    assert_allclose(Z, truth.C @ truth.Dz)
    assert ((truth.C != 0).sum(axis=1) == 3).all()
    assert ((truth.A != 0) == (truth.C[y] != 0)).all()
    for D in (truth.Dx, truth.Dz):
        assert_allclose(np.linalg.norm(D, axis=1), 1)
    assert np.bincount(y).tolist() == [8, 7, 7, 7, 7, 7, 7]


def test_noise_has_the_stated_length():
    X, _, _, truth = synthetic.draw(n_images=4000, noise=0.3)
    assert_allclose((np.linalg.norm(X - truth.A @ truth.Dx, axis=1) ** 2).mean(), 0.3**2, rtol=0.05)


def test_seed_decides():
    a, b, c = (synthetic.draw(seed=s)[0] for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_shift_moves_the_last_classes_by_one_vector():
    X, y, Z, _ = synthetic.draw(n_classes=7, shift=0.0)
    moved, _, Z_moved, truth = synthetic.draw(n_classes=7, shift=2.0, n_shifted=3)
    np.testing.assert_array_equal(Z, Z_moved)
    np.testing.assert_array_equal(X[y < 4], moved[y < 4])
    by = moved[y >= 4] - X[y >= 4]
    assert_allclose(by, by[:1].repeat(len(by), axis=0), atol=1e-12)
    assert_allclose(moved[y >= 4] - truth.A[y >= 4] @ truth.Dx, X[y >= 4] - (truth.A[y >= 4] @ truth.Dx - by))
    common = np.linalg.lstsq(truth.Dx.T, by[0], rcond=None)[0]
    assert_allclose(np.linalg.norm(common), 2.0)


@pytest.mark.parametrize("preset", ["small", "cub"])
@pytest.mark.slow
def test_presets_have_the_benchmarks_shape(preset):
    table = synthetic.load(preset=preset)
    n_classes, n_unseen, n_images, p, q = synthetic.SHAPES[preset]
    assert table.features.shape == (n_images, p)
    assert table.attributes.shape == (n_classes, q)
    assert table.n_unseen == n_unseen
    assert table.provenance["simulated"]


def test_refusals():
    with pytest.raises(UserError, match="n_nonzero=9 is more than n_atoms=5"):
        synthetic.draw(n_nonzero=9, n_atoms=5)
    with pytest.raises(UserError, match="preset='imagenet' is not accepted"):
        synthetic.load(preset="imagenet")
    with pytest.raises(UserError, match="n_classes=5 leaves no seen class"):
        synthetic.load(n_classes=5)
    with pytest.raises(UserError, match="n_images=0 is not accepted"):
        synthetic.draw(n_images=0)


def test_words_have_the_stated_shape_and_say_as_much_as_they_share():
    table = synthetic.load_words()
    assert table.features.shape == (10_000, 256)
    assert table.attributes.shape == (100, 100)
    assert table.features.min() == 0
    assert (table.features == 0).mean() > 0.2
    assert np.linalg.norm(table.attributes.mean(axis=0)) > 5
    variances = np.linalg.svd(table.features - table.features.mean(axis=0), compute_uv=False) ** 2
    assert variances[:64].sum() > 0.75 * variances.sum()

    def likeness(shared):
        """Correlation over pairs of classes of the products of word vectors and of class means."""
        X, y, Z = synthetic.draw_words(shared=shared, within=0.0, nuisance=0.0, n_images=100)
        M = np.array([X[y == c].mean(axis=0) for c in range(100)])
        pairs = np.triu_indices(100, 1)
        products = [((A - A.mean(axis=0)) @ (A - A.mean(axis=0)).T)[pairs] for A in (M, Z)]
        return np.corrcoef(*products)[0, 1]

    assert abs(likeness(0.0)) < 0.05
    assert likeness(1.0) > 0.8 > likeness(0.7) > 0.2
