"""f-CLSWGAN: its losses against closed forms and SciPy, the generator against NumPy, and life without torch."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal, wasserstein_distance

from zsl import UserError, ZeroShotClassifier
from zsl.config import without_package
from zsl.evaluation import class_accuracy
from zsl.models import FCLSWGAN, RidgeReverse
from zsl.models import fclswgan as gan
from zsl.report.compare import comparison

SMALL = {"hidden": 16, "n_components": None, "n_epochs": 2, "n_generated": 50}


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[torch]' runs this")


@pytest.fixture(scope="module")
def problem():
    """Gaussian classes whose means are linear in the attributes: 12 seen classes, 4 unseen ones with 25 images each."""
    rng = np.random.default_rng(0)
    S = rng.standard_normal((16, 4))
    S /= np.linalg.norm(S, axis=1, keepdims=True)
    M, y, test = S @ rng.standard_normal((4, 10)), np.arange(240) % 12, np.arange(100) % 4
    X, X_test = M[y] + 0.5 * rng.standard_normal((240, 10)), M[12 + test] + 0.5 * rng.standard_normal((100, 10))
    return X, y, S[y], S[12:], X_test, test


@pytest.fixture(scope="module")
def fitted(torch, problem):
    return FCLSWGAN(**SMALL).fit(*problem[:4])


def critic(torch, W1, b1, W2):
    """A critic of images beside one attribute, in double precision."""
    parts = (np.vstack([W1, np.zeros((1, W1.shape[1]))]), b1, W2, np.zeros(1))
    return [torch.tensor(np.asarray(part, dtype=float), requires_grad=True) for part in parts]


def images(torch, rng, n, d):
    """Real and generated images, their attribute and the share of the real ones."""
    return [torch.tensor(a) for a in (rng.standard_normal((n, d)), rng.standard_normal((n, d)),
                                      rng.standard_normal((n, 1)), rng.random((n, 1)))]  # fmt: skip


# --- losses -----------------------------------------------------------------------------------------------------


def test_the_penalty_of_a_linear_critic(torch, rng):
    # With a bias that keeps its only hidden unit positive the critic is w.x and a constant.
    w = rng.standard_normal(5)
    D = critic(torch, w[:, None], [100.0], [[1.0]])
    distance, penalty = gan.critic_terms(D, *(parts := images(torch, rng, 7, 5)))
    assert_allclose(float(penalty.detach()), (np.linalg.norm(w) - 1) ** 2, rtol=1e-12)
    real, made = (part.numpy().mean(axis=0) for part in parts[:2])
    assert_allclose(float(distance.detach()), w @ (real - made), rtol=1e-11)


def test_the_derivative_of_the_penalty(torch, rng):
    # The gradient of the critic at x is W (m * v), m being 1 or 0.2 for each hidden unit: constant between the kinks.
    W, b, v = rng.standard_normal((5, 8)), rng.standard_normal(8), rng.standard_normal((8, 1))
    D, (x, made, s, share) = critic(torch, W, b, v), images(torch, rng, 7, 5)
    (found_W, found_v) = torch.autograd.grad(gan.critic_terms(D, x, made, s, share)[1], [D[0], D[2]])
    X = (share * x + (1 - share) * made).numpy()
    m = np.where(X @ W + b > 0, 1, 0.2)
    slopes = (m * v[:, 0]) @ W.T
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    outer = 2 * (lengths - 1) / lengths * slopes / 7
    assert_allclose(found_W[:5], outer.T @ (m * v[:, 0]), atol=1e-12)
    assert_allclose(found_v[:, 0], (m * (outer @ W)).sum(axis=0), atol=1e-12)


def test_the_critic_estimates_the_wasserstein_distance(torch, rng):
    # Kantorovich and Rubinstein: the estimate of a critic is at most the distance times its Lipschitz constant.
    x, made = rng.standard_normal(64), 0.5 * rng.standard_normal(64) + 2
    exact = wasserstein_distance(x, made)
    draw = torch.Generator().manual_seed(0)
    D = gan.start(2, 16, torch.zeros(1), draw)
    with torch.no_grad():
        # In one dimension the penalty has an optimum at slopes of either sign; training starts on the right side.
        D[0].abs_()
        D[2].abs_().neg_()
    parts = [torch.tensor(a, dtype=torch.float32)[:, None] for a in (x, made, np.zeros(64))]
    adam = torch.optim.Adam(D, lr=0.02, betas=gan.BETAS)
    for _ in range(300):
        distance, penalty = gan.critic_terms(D, *parts, torch.rand(64, 1, generator=draw))
        gan._step(adam, gan.PENALTY * penalty - distance)
    W, b, v = (w.detach().numpy().astype(float) for w in D[:3])
    kinks = np.sort(-b / W[0])
    inside = np.concatenate([[kinks[0] - 1], (kinks[1:] + kinks[:-1]) / 2, [kinks[-1] + 1]])
    slopes = (np.where(inside[:, None] * W[0] + b > 0, 1, 0.2) * v[:, 0]) @ W[0]
    estimate = float(gan.critic_terms(D, *parts, torch.ones(64, 1))[0].detach())
    assert estimate <= np.abs(slopes).max() * exact * (1 + 1e-4)
    # The penalty keeps the slope near 1 where images are, so the bound is nearly reached.
    assert estimate > 0.9 * exact


def test_without_critic_and_noise_the_generator_pleases_the_classifier(torch, problem):
    X, y, Z = problem[:3]
    _, U = gan.scale(X, None)
    W, b = (torch.tensor(a, dtype=torch.float32) for a in gan.seen_classifier(U, y, 12))
    s, labels = torch.tensor(Z[:12], dtype=torch.float32), torch.arange(12)
    draw = torch.Generator().manual_seed(0)
    G = gan.start(8, 16, torch.full((10,), 0.5), draw)
    D = [torch.zeros(shape) for shape in ((14, 16), (16,), (16, 1), (1,))]
    adam = torch.optim.Adam(G, lr=0.01, betas=gan.BETAS)
    values = []
    for _ in range(150):
        loss = gan.generator_loss(D, gan.generate(G, s, torch.zeros(12, 4)), s, labels, W, b, 1.0)
        values.append(float(loss.detach()))
        gan._step(adam, loss)
    made = gan.generate(G, s, torch.zeros(12, 4)).detach()
    assert values[-1] < 0.5 * values[0]
    assert_array_equal((made @ W + b).argmax(dim=1), labels)
    # A critic that is 0 everywhere adds nothing, and the weight multiplies the loss of the classifier.
    half = gan.generator_loss(D, made, s, labels, W, b, 0.5)
    logits = (made @ W + b).numpy().astype(float)
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), np.arange(12)]
    assert_allclose(float(half), 0.5 * nll.mean(), rtol=1e-4)


def test_the_frozen_classifier_is_the_softmax_of_scikit_learn(problem):
    from sklearn.linear_model import LogisticRegression

    _, U = gan.scale(problem[0], None)
    W, b = gan.seen_classifier(U, problem[1], 12)
    ours = U @ W + b
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(U, problem[1]).decision_function(U)
    ours, theirs = (F - F.mean(axis=1, keepdims=True) for F in (ours, theirs))
    assert np.abs(ours - theirs).max() < 0.01 * np.abs(theirs).max()


def test_features_are_scaled_by_the_training_images(problem):
    X, X_test = problem[0], problem[4]
    for n_components in (None, 3):
        scaling, U = gan.scale(1e3 + X, n_components)
        assert U.shape == (240, n_components or 10)
        assert_allclose([U.min(axis=0), U.max(axis=0)], [np.zeros(U.shape[1]), np.ones(U.shape[1])], atol=1e-12)
        assert_array_equal(scaling(X_test[:5]), scaling(X_test)[:5])
    assert_allclose(gan.scale(X, None)[0](X_test), (X_test - X.min(axis=0)) / np.ptp(X, axis=0), atol=1e-12)


# --- the fitted model -------------------------------------------------------------------------------------------


def test_numpy_generates_what_torch_does(torch, fitted, problem):
    s = problem[3][0]
    weights = [torch.tensor(w, dtype=torch.float32) for w in fitted.weights_]
    parts = (torch.tensor(np.broadcast_to(s, (50, 4)).copy(), dtype=torch.float32),
             torch.tensor(fitted.noise_, dtype=torch.float32))  # fmt: skip
    assert_allclose(fitted.generate(s), gan.generate(weights, *parts).numpy(), atol=1e-6)


def test_scores_are_log_densities(fitted, problem):
    X, _, Z, Z_unseen, X_test, _ = problem
    R = np.vstack([G - G.mean(axis=0) for G in (fitted.generate(s) for s in Z[:12])])
    cov = R.T @ R / len(R)
    cov = 0.5 * cov + 0.5 * np.trace(cov) / 10 * np.eye(10)
    U = (X_test - X.min(axis=0)) / np.ptp(X, axis=0)
    expected = np.column_stack([multivariate_normal(fitted.generate(s).mean(axis=0), cov).logpdf(U) for s in Z_unseen])
    scores = fitted.scores(X_test)
    scale = np.abs(expected).max()
    assert_allclose(scores - scores[:, :1], expected - expected[:, :1], atol=1e-8 * scale)


def test_a_seed_decides_and_the_generator_of_torch_stays(torch, fitted, problem):
    before = torch.get_rng_state()
    again, other = (FCLSWGAN(**SMALL, seed=seed).fit(*problem[:4]).scores(problem[4]) for seed in (0, 1))
    assert_array_equal(again, fitted.scores(problem[4]))
    assert not np.allclose(other, again)
    assert_array_equal(torch.get_rng_state(), before)


def test_it_is_nearly_as_good_as_regression_where_means_are_linear(torch, problem):
    X, y, Z, Z_unseen, X_test, test = problem
    model = FCLSWGAN(hidden=64, n_components=None, n_epochs=150, learning_rate=5e-3)
    scores = [m.fit(X, y, Z, Z_unseen).scores(X_test) for m in (model, RidgeReverse(gamma=1e-6))]
    ours, regression = (np.mean(list(class_accuracy(s, test).values())) for s in scores)
    # 100 test images: a standard error of at most 0.05.
    assert ours > regression - 0.1
    assert np.mean(model.distance_[-10:]) < 0.3 * max(model.distance_)


# --- without torch ----------------------------------------------------------------------------------------------


def test_a_saved_classifier_predicts_without_torch(torch, problem, tmp_path, monkeypatch):
    X, y, Z, Z_unseen, X_test, _ = problem
    table = {f"class {c}": row for c, row in enumerate(np.vstack([Z[:12], Z_unseen]))}
    names = np.array(list(table))[y]
    classifier = ZeroShotClassifier(FCLSWGAN(**SMALL), inference="own").fit(X, names, table)
    classifier.save(tmp_path / "model.skops")
    monkeypatch.setitem(sys.modules, "torch", None)
    stored = ZeroShotClassifier.load(tmp_path / "model.skops")
    assert_array_equal(stored.decision_function(X_test), classifier.decision_function(X_test))


def test_training_without_torch_names_the_way_to_it(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"^model=fclswgan is trained by torch, .*pip install -e '\.\[torch\]'\.$"):
        FCLSWGAN().fit(*problem[:4])


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.slow
def test_the_comparison_leaves_out_what_cannot_be_trained(there, monkeypatch):
    monkeypatch.setattr("zsl.report.compare.without_package", lambda group: {} if there else {"fclswgan": "torch"})
    for stage in ("quick", "full"):
        sweeps, lacking = comparison([f"stage={stage}", "data=cifar_awa"])
        run = [m for _, words in sweeps for w in words if w.startswith("model=") and "glob" not in w
               for m in w.removeprefix("model=").split(",")]  # fmt: skip
        # What the glob covers excludes it in any case: it is slow.
        assert all("fclswgan" in w for _, words in sweeps for w in words if "glob" in w)
        assert ("fclswgan" in run) == there
        assert ("torch is not installed" in lacking.get("fclswgan", "")) == (not there)
    # Who names the model gets the sentence of training.
    sweeps, lacking = comparison(["model=fclswgan", "data=cifar_awa"])
    assert "model=fclswgan" in sweeps[0][1]
    assert not lacking


def test_a_package_that_is_not_there_is_known_by_the_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert without_package("model") == {"fclswgan": "torch"}
