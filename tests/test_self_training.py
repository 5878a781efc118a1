"""The semantic dictionary adapted to confident test images: stationarity, what stays, what is refused."""

import numpy as np
import pytest

import zsl
from zsl.errors import UserError
from zsl.inference import agnostic, cosine, self_trained
from zsl.inference.labels import confident_images
from zsl.inference.statistics import seen_statistics
from zsl.models import Ridge


@pytest.fixture(scope="module")
def fitted():
    data = zsl.load_dataset("synthetic")
    model = zsl.CoupledDictionaries(n_iter=2).fit(data.X, data.y, data.Z, data.Z_unseen)
    return data, model, seen_statistics(model, data.X, data.y, data.Z)


def test_confident_images_by_hand():
    scores = np.array([[3.0, 0], [2, 0], [1, 0], [0, 1]])
    first, second = confident_images(scores, 0.5)
    assert first.tolist() == [0, 1]
    assert second.tolist() == [3]
    assert confident_images(scores - [10, 0], 0.5)[0].size == 0


def test_one_round_is_stationary(fitted):
    data, model, seen = fitted
    start = agnostic(model, data.X_unseen)
    A = start.codes.A.astype(float)
    found = self_trained(model, data.X_unseen, data.Z_unseen, seen, start=start, n_rounds=1)
    chosen = confident_images(cosine(A @ model.Dz_, data.Z_unseen), 0.5)
    rows = np.concatenate(chosen)
    target = data.Z_unseen[np.repeat(np.arange(len(chosen)), [len(r) for r in chosen])]
    (H,) = seen.H
    H = H + 1e-3 * np.trace(H) / len(H) * np.eye(len(H))
    w = 0.1 / len(rows)
    # The normal equations on their own: (H + w A'A) D = H Dz + w A'Z.
    D = np.linalg.solve(H + w * A[rows].T @ A[rows], H @ model.Dz_ + w * A[rows].T @ target)
    np.testing.assert_allclose(found.Z_hat, A @ D, atol=1e-7)


def test_a_model_without_dictionaries_is_refused(fitted):
    data, _, seen = fitted
    ridge = Ridge().fit(data.X, data.y, data.Z, data.Z_unseen)
    with pytest.raises(UserError, match="self_trained needs dictionaries, and Ridge has none"):
        self_trained(ridge, data.X_unseen, data.Z_unseen, seen)
