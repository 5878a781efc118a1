"""Averaged dictionaries: one is coupled dictionaries, several are their mean, under every rule and in files."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import zsl
from conftest import images_by_attributes
from zsl.inference import agnostic, aware, code_eszsl, cosine, nearest, seen_statistics, self_trained, visual
from zsl.inference.labels import confident_images
from zsl.linalg import class_means
from zsl.models import AveragedDictionaries, CoupledDictionaries
from zsl.models.averaged import seeds

SETTINGS = {"n_atoms": 12, "n_iter": 2, "lam_relative": 0.1}
NAMES = ("Dx_", "Dz_", "lam_", "objective_x_", "objective_z_", "gap_x_", "gap_z_", "redrawn_", "density_", "B_",
         "lasso_gap_max_", "A_")  # fmt: skip


@pytest.fixture(scope="module")
def problem():
    return images_by_attributes(np.random.default_rng(0))


@pytest.fixture(scope="module")
def data():
    return zsl.load_dataset("synthetic")


@pytest.fixture(scope="module")
def three(data):
    return AveragedDictionaries(n_dictionaries=3, n_atoms=45).fit(data.X, data.y, data.Z, data.Z_unseen)


@pytest.mark.parametrize(
    "more", [{}, {"unseen_weight": "eq2"}, {"coupling": "joint", "unseen_weight": "eq2"}, {"n_iter": 0}]
)
def test_one_is_a_pair_of_coupled_dictionaries(problem, more):
    settings = {"seed": 3, "unseen_weight": "none", **SETTINGS, **more}
    one = AveragedDictionaries(n_dictionaries=1, **settings).fit(*problem)
    pair = CoupledDictionaries(**settings).fit(*problem)
    for name in NAMES:
        assert hasattr(one, name) == hasattr(pair, name)
        if hasattr(pair, name):
            assert_array_equal(getattr(one, name), getattr(pair, name), err_msg=name)
    assert_array_equal(one.scores(problem[0]), pair.scores(problem[0]))


def test_with_their_defaults_the_literal_model_is_the_average_of_one_with_its_settings(problem):
    literal = {"lam_relative": 0.1, "n_iter": 10, "unseen_weight": "eq2", "n_atoms": 7}  # 1.25 times 5 features
    one = AveragedDictionaries(n_dictionaries=1, **literal).fit(*problem)
    assert_array_equal(one.scores(problem[0]), CoupledDictionaries().fit(*problem).scores(problem[0]))


@pytest.mark.parametrize("batch_size", [None, 30])
def test_several_are_the_mean_of_their_members(problem, batch_size):
    X, (y, Z, U) = problem[0], problem[1:]
    settings = {"batch_size": batch_size, "unseen_weight": "eq4", **SETTINGS}
    model = AveragedDictionaries(n_dictionaries=3, seed=4, **settings).fit(X, y, Z, U)
    alone = [CoupledDictionaries(seed=s, **settings).fit(X, y, Z, U) for s in seeds(4, 3)]
    assert seeds(4, 3)[0] == 4
    assert len({m.Dx_.tobytes() for m in alone}) == 3
    found = np.mean([m.predict_attributes(X) for m in alone], axis=0)
    assert_allclose(model.predict_attributes(X), found, rtol=0, atol=1e-12)
    assert_allclose(model.scores(X), nearest(found, U), rtol=0, atol=1e-12)
    codes = model.codes(X)
    assert_array_equal(codes.A, np.hstack([m.codes(X).A for m in alone]))
    assert_array_equal(codes.gap, np.max([m.codes(X).gap for m in alone], axis=0))
    for member, m in zip(model.members_, alone, strict=True):
        assert_array_equal(member.Dx_, m.Dx_)
        assert_allclose(member.Dz_, m.Dz_, rtol=1e-15)
    assert model.lams_ == [m.lam_ for m in alone]
    assert model.lam_ == pytest.approx(np.mean(model.lams_))
    assert model.density_ == pytest.approx(np.mean([m.density_ for m in alone]))
    assert model.lasso_gap_max_ == max(m.lasso_gap_max_ for m in alone)
    assert model.B_.shape == (len(U), 36)
    if batch_size is None:
        assert_array_equal(model.A_, np.hstack([m.A_ for m in alone]))
    else:
        assert model.codes_ is None


def test_curves_of_members_that_end_at_different_times_have_one_length(problem):
    model = AveragedDictionaries(n_dictionaries=4, n_atoms=10, n_iter=40, tol=1e-3).fit(*problem)
    alone = [m.fit(*problem) for m in (CoupledDictionaries(n_atoms=10, n_iter=40, tol=1e-3, seed=s, lam_relative=0.05,
                                                           unseen_weight="none") for s in seeds(0, 4))]  # fmt: skip
    ends = [m.objective_x_[-1] for m in alone]
    assert len({len(m.objective_x_) for m in alone}) > 1
    assert model.objective_x_[-1] == pytest.approx(np.mean(ends))
    assert len(model.objective_x_) == len(model.gap_x_) == len(model.redrawn_) + 1


@pytest.mark.parametrize(
    ("given", "n", "p", "q", "atoms", "dictionaries"),
    [
        ({}, 4000, 128, 85, 160, 5),
        ({}, 4000, 9, 9, 64, 5),
        ({}, 40, 9, 9, 40, 5),
        ({}, 4000, 512, 85, 640, 4),
        ({}, 4000, 1280, 85, 1600, 1),
        ({}, 9000, 2048, 85, 2560, 1),
        ({"n_atoms": 5120}, 9000, 4096, 85, 5120, 1),
        ({"n_atoms": 1600, "n_dictionaries": 2}, 4000, 1280, 85, 1600, 2),
    ],
)
def test_default_size(given, n, p, q, atoms, dictionaries, monkeypatch):
    fitted = []

    def fit(self, X, y, Z, Z_unseen):
        fitted.append(self.n_atoms)
        raise KeyboardInterrupt  # the number of members is asked below

    monkeypatch.setattr(CoupledDictionaries, "fit", fit)
    monkeypatch.setattr("zsl.models.averaged.seeds", lambda seed, k: fitted.append(k) or [seed])
    y = np.arange(n) % 3
    with pytest.raises(KeyboardInterrupt):
        AveragedDictionaries(**given).fit(np.ones((n, p), np.float32), y, np.ones((n, q)), np.ones((2, q)))
    assert fitted == [dictionaries, atoms]


def independent_code_eszsl(codes, y, S, test_codes, Z):
    """The sum over dictionaries of ``a (A'A + 30 t I)^-1 A'Z (S'S + I)^-1 z'``, with the images' attributes Z."""
    total = 0.0
    for A, a in zip(codes, test_codes):
        A, a = A.astype(float), a.astype(float)
        t = (A**2).sum(axis=1).mean()
        W = np.linalg.inv(A.T @ A + 30 * t * np.eye(A.shape[1])) @ A.T @ S[y]
        total = total + a @ W @ np.linalg.inv(S.T @ S + np.eye(S.shape[1])) @ Z.T
    return total


def test_code_eszsl_is_the_sum_over_the_members_and_the_formula(data, three):
    S = class_means(data.Z, data.y)
    alone, tests = 0.0, []
    statistics = seen_statistics(three, data.X, data.y, data.Z)
    scores = code_eszsl(agnostic(three, data.X_unseen), data.Z_unseen, statistics)
    for member in three.members_:
        alone = alone + code_eszsl(
            agnostic(member, data.X_unseen), data.Z_unseen, seen_statistics(member, data.X, data.y, data.Z)
        )
        tests.append(member.codes(data.X_unseen).A)
    size = np.abs(scores).max()
    assert_allclose(scores, alone, rtol=0, atol=1e-6 * size)  # the codes of training begin elsewhere
    codes = np.split(three.A_, 3, axis=1)
    assert_allclose(scores, independent_code_eszsl(codes, data.y, S, tests, data.Z_unseen), rtol=0, atol=1e-10 * size)
    assert statistics.H.shape == (3, 45, 45)
    assert statistics.V.shape == (135, data.Z.shape[1])


def test_the_reconstruction_is_the_mean_of_the_members_up_to_scale(data, three):
    statistics = seen_statistics(three, data.X, data.y, data.Z)
    mean = np.mean([m.codes(data.X_unseen).A @ m.Dx_ for m in three.members_], axis=0)
    found = visual(data.X_unseen, data.Z_unseen, statistics, three, agnostic(three, data.X_unseen))
    expected = statistics.directions(mean) @ statistics.prototypes(data.Z_unseen).T
    assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("settings", [{}, {"scale": "prototype", "kernel": "gaussian", "rho": 0.1}])
def test_aware_codes_are_those_of_each_member(data, three, settings):
    X, U = data.X_unseen[:60], data.Z_unseen
    found, alone = aware(three, X, U, **settings), [aware(m, X, U, **settings) for m in three.members_]
    assert_allclose(found.codes.A, np.hstack([one.codes.A for one in alone]), rtol=0, atol=1e-12)
    assert_allclose(found.Z_hat, np.mean([one.Z_hat for one in alone], axis=0), rtol=0, atol=1e-12)
    for name in ("objective_before", "objective_after", "entropy_after"):
        assert_allclose(found.report[name], np.mean([one.report[name] for one in alone], axis=0), atol=1e-12)
    assert_array_equal(found.report["n_iter"], np.max([one.report["n_iter"] for one in alone], axis=0))
    assert (found.report["objective_after"] <= found.report["objective_before"]).all()
    assert (found.codes.A != agnostic(three, X).codes.A).any()


def test_self_training_refits_each_member_to_the_images_of_which_the_mean_is_confident(data, three):
    statistics, start = seen_statistics(three, data.X, data.y, data.Z), agnostic(three, data.X_unseen)
    found = self_trained(three, data.X_unseen, data.Z_unseen, statistics, start=start, n_rounds=1)
    chosen = confident_images(cosine(start.Z_hat, data.Z_unseen), 0.5)
    rows, label = np.concatenate(chosen), np.repeat(np.arange(len(chosen)), [len(r) for r in chosen])
    total, w = 0.0, 0.1 / len(rows)
    for k, m in enumerate(three.members_):
        A = start.codes.A[:, 45 * k : 45 * (k + 1)]
        H = statistics.H[k] + 1e-3 * np.trace(statistics.H[k]) / 45 * np.eye(45)
        # The normal equations on their own: (H + w A'A) D = H Dz + w A'Z.
        D = np.linalg.solve(H + w * A[rows].T @ A[rows], H @ m.Dz_ + w * A[rows].T @ data.Z_unseen[label])
        total = total + A @ D / 3
    assert_allclose(found.Z_hat, total, rtol=0, atol=1e-7)
    # The statistics of one dictionary in a file of an earlier version have one matrix.
    one = three.members_[0]
    seen = seen_statistics(one, data.X, data.y, data.Z)
    now, earlier = (
        self_trained(one, data.X_unseen, data.Z_unseen, s).Z_hat for s in (seen, seen._replace(H=seen.H[0]))
    )
    assert_array_equal(now, earlier)


@pytest.mark.parametrize("inference", ["auto", "inductive", "transductive"])
def test_a_saved_classifier_answers_as_before(data, tmp_path, inference):
    raw = zsl.ZeroShotClassifier(AveragedDictionaries(n_dictionaries=2, n_atoms=30), inference).fit_data(data)
    raw.save(tmp_path / "model.skops")
    again = zsl.ZeroShotClassifier.load(tmp_path / "model.skops")
    assert not hasattr(again.model_, "codes_")
    assert again.model_.n_dictionaries_ == 2
    assert_array_equal(again.decision_function(data.X_unseen), raw.decision_function(data.X_unseen))
    raw.save(tmp_path / "small.skops", precision="single")
    assert (tmp_path / "small.skops").stat().st_size < (tmp_path / "model.skops").stat().st_size
    near = zsl.ZeroShotClassifier.load(tmp_path / "small.skops").model_.predict_attributes(data.X_unseen)
    assert_allclose(near, raw.model_.predict_attributes(data.X_unseen), rtol=0, atol=1e-5)


def test_after_a_kill_the_same_fit_ends_at_the_same_dictionaries(problem, tmp_path, monkeypatch):
    settings = {"n_dictionaries": 3, "n_atoms": 12, "n_iter": 4}
    whole = AveragedDictionaries(**settings).fit(*problem)
    encode, calls = CoupledDictionaries._encode, []

    def stops(self, *args):
        calls.append(self.seed)
        if self.seed == seeds(0, 3)[1] and calls.count(self.seed) == 4:
            raise KeyboardInterrupt
        return encode(self, *args)

    model = AveragedDictionaries(checkpoint=str(tmp_path / "ck"), checkpoint_minutes=1e-9, **settings)
    with monkeypatch.context() as broken:
        broken.setattr(CoupledDictionaries, "_encode", stops)
        with pytest.raises(KeyboardInterrupt):
            model.fit(*problem)
    assert len(list(tmp_path.glob("ck-*.npz"))) == 2  # of the first member, which is learned, and of the second
    counted = []

    def counts(self, *args):
        counted.append(self.seed)
        return encode(self, *args)

    with monkeypatch.context() as watched:
        watched.setattr(CoupledDictionaries, "_encode", counts)
        model.fit(*problem)
    first, second, third = (counted.count(seed) for seed in seeds(0, 3))
    assert first == 0  # learned before the kill
    assert 0 < second < third
    assert not list(tmp_path.glob("ck-*.npz"))
    for name in ("Dx_", "Dz_", "A_"):
        assert_array_equal(getattr(model, name), getattr(whole, name))
    assert not list(tmp_path.iterdir())


def test_the_default_classifier_averages(data):
    classifier = zsl.ZeroShotClassifier(inference="inductive").fit_data(data)
    assert isinstance(classifier.model_, AveragedDictionaries)
    prediction = classifier.predict_stages(data.X_unseen)
    assert [stage.name for stage in prediction.stages] == ["aag", "agnostic_code_eszsl"]
    assert not prediction.chosen.information
