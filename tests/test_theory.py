"""The paper's theory: values by hand, monotonicity, a simulation, and bounds that are vacuous."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl import theory
from zsl.errors import UserError
from zsl.report.__main__ import main, parser
from zsl.report.theory import AWA2, corrected_and_printed

# AwA2 with ResNet50 features and the fewest atoms that the paper allows.
N, P, Q, R = 23527, 2048, 85, 2049


def test_law_of_the_nearest_distance():
    # Seven points in the unit disc, distances from its centre: R(t) = t^2.
    t = np.linspace(0.05, 0.95, 10)
    nearest = np.sqrt(np.random.default_rng(0).random((200_000, 7))).min(axis=1)
    ours = [theory.nearest_distance_cdf(float(x), 7) for x in t**2]
    assert_allclose(ours, (nearest[:, None] <= t).mean(axis=0), atol=4 * 0.5 / np.sqrt(200_000))
    assert_allclose(theory.nearest_distance_cdf(0.5, 3), 1 - 1 / 8)
    assert theory.nearest_distance_cdf(1.0, 9) == 1
    assert_allclose(theory.nearest_distance_cdf(1e-18, 10), 1e-17, rtol=1e-12)  # 1 - (1 - R)^n would round to 0


@given(seed=st.integers(0, 1000), zeta=st.floats(0, 0.999), n=st.integers(1, 60))
def test_epsilon_max_is_where_the_law_passes_zeta(seed, zeta, n):
    distances = np.sort(np.random.default_rng(seed).random(30))
    epsilon = theory.epsilon_max(distances, zeta, n)
    assert theory.nearest_distance_cdf(float((distances < epsilon).mean()), n) <= zeta + 1e-9
    if epsilon < distances[-1]:
        assert theory.nearest_distance_cdf(float((distances <= epsilon).mean()), n) > zeta - 1e-9
    assert theory.epsilon_max(distances, zeta, n + 1) <= epsilon  # more rivals, less room


def test_epsilon_max_by_hand():
    distances = np.array([4.0, 1.0, 2.0, 3.0])
    # One rival: W = R, and half of the distances may lie below it. Two rivals: 7/16 = 1 - (3/4)^2, so R may be 1/4.
    cases = ((0.5, 1), (0.49, 1), (0.0, 1), (7 / 16, 2))
    assert [theory.epsilon_max(distances, *case) for case in cases] == [3, 2, 1, 2]


def test_distances_and_radii():
    Z = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert_allclose(theory.class_distances(Z), [1, math.sqrt(18), 5])
    assert_allclose(theory.safe_radius(Z), [0.5, math.sqrt(18) / 2, 0.5])
    assert_allclose(theory.safe_radius(Z[[0, 0, 1]]), [0, 0, 2.5])


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool, object, np.float32])
def test_radii_do_not_depend_on_the_type_of_the_attributes(dtype):
    # Differences of unsigned bytes wrap around at 256, those of signed ones at 128.
    Z = np.array([[0, 0], [1, 0], [1, 1]] if dtype is bool else [[0, 100], [1, 0], [1, 120]])
    assert_allclose(theory.safe_radius(Z.astype(dtype)), theory.safe_radius(Z.astype(float)), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 1), (2, 2), ()])
def test_distances_are_one_list(shape):
    distances = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    with pytest.raises(UserError, match="one list is needed"):
        theory.epsilon_max(distances, 0.5, 1)
    assert theory.epsilon_max([4, 3, 2, 1], 0.5, 1) == theory.epsilon_max(np.array([1.0, 2.0, 3.0, 4.0]), 0.5, 1) == 3
    with pytest.raises(UserError, match="masked"):
        theory.epsilon_max(np.ma.array([1.0, 2.0], mask=[False, True]), 0.5, 1)


@given(seed=st.integers(0, 1000))
def test_errors_below_the_safe_radius_change_no_label(seed):
    rng = np.random.default_rng(seed)
    Z, error = rng.normal(size=(6, 3)), rng.normal(size=3)
    for m, radius in enumerate(theory.safe_radius(Z)):
        z = Z[m] + 0.999 * radius * error / np.linalg.norm(error)
        assert np.linalg.norm(Z - z, axis=1).argmin() == m


@given(seed=st.integers(0, 1000), share=st.floats(0.01, 1))
def test_markov_holds_for_any_errors(seed, share):
    errors = np.random.default_rng(seed).standard_cauchy(100)
    radius = math.sqrt((errors**2).mean() / share)  # makes the mean square exactly what is needed
    assert theory.mean_square_needed(radius, share) == pytest.approx((errors**2).mean())
    assert (np.abs(errors) > radius).mean() <= share


def test_bound_by_hand():
    # A Lipschitz constant so small that the maximum is 1: c = 8 / 8; log(2 / delta) / 8 = 3.
    n, delta = 100, 2 * math.exp(-24)
    assert theory.deviation_bound(n, 8, delta, 1e-3) == pytest.approx(3 * math.sqrt(math.log(100) / 100) + 0.2)


def test_the_bound_is_vacuous_at_the_size_of_awa2():
    entries = theory.n_parameters(P, Q, R)
    assert entries == 2133 * 2049
    assert 84 < theory.deviation_bound(N, entries, 0.05) < 87  # 1 is the loss without any dictionary
    assert 3.5e10 < theory.images_needed(0.1, entries, 0.05) < 4.5e10


@given(
    deviation=st.floats(1e-3, 50), parameters=st.integers(1, 10**7), delta=st.floats(1e-9, 0.5),
    lipschitz=st.floats(1e-3, 1e6),
)  # fmt: skip
def test_images_needed_are_the_fewest_and_the_bound_is_monotone(deviation, parameters, delta, lipschitz):
    n = theory.images_needed(deviation, parameters, delta, lipschitz)
    bound = theory.deviation_bound(n, parameters, delta, lipschitz)
    assert bound <= deviation
    # For large n a difference of one image is below rounding, so one image in a billion is left out.
    if (fewer := min(n - 1, int(n * (1 - 1e-9)))) >= 3:
        assert theory.deviation_bound(fewer, parameters, delta, lipschitz) > deviation * (1 - 1e-12)
    assert theory.deviation_bound(n, 2 * parameters, delta, lipschitz) > bound
    assert theory.deviation_bound(n, parameters, delta / 10, lipschitz) >= bound


def test_images_beyond_what_a_float_holds():
    n = theory.images_needed(1e-200, 10**6, 0.05)
    assert n > 10**400
    assert theory.deviation_bound(n, 10**6, 0.05) <= 1e-200


@given(p=st.integers(1, 5000), xi=st.floats(1e-6, 10), more=st.integers(1, 5000))
def test_theorem_2_is_a_probability_and_more_atoms_allow_fewer_entries(p, xi, more):
    assert 0 <= theory.recovery_probability(p, xi) <= 1
    assert theory.recovery_probability(p, xi, as_printed=True) < 0  # the printed formula is negative for every xi > 0
    few, many = ((p, p + more + k) for k in (0, 1))
    assert theory.sparsity_limit(*many) <= theory.sparsity_limit(*few)
    assert theory.sparsity_limit(*many, as_printed=True) >= theory.sparsity_limit(*few, as_printed=True)


def test_theorem_2_and_the_product_by_hand():
    assert theory.recovery_probability(10, 0.1) == pytest.approx(1 - math.exp(-1))
    assert theory.recovery_probability(10, 0.1, as_printed=True) == pytest.approx(1 - math.e)
    assert theory.recovery_probability(10**6, 1.0, as_printed=True) == -math.inf
    assert theory.sparsity_limit(100, 271, 0.1) == pytest.approx(10 / math.log(2.71))
    assert theory.sparsity_limit(100, 271, 0.1, as_printed=True) == pytest.approx(10 * math.log(2.71))
    assert theory.sparsity_limit(P, R) == P  # never more entries than equations
    assert theory.label_probability(0.1, 0.5, 0.2, share=0.5) == pytest.approx(0.9 * 0.5 * 0.8 * 0.5)


def test_costs_by_hand():
    assert theory.network_cost(2, [3, 5], 7, 11) == (2 * 3 + 3 * 5, 5 * 7, 7 * 11)
    assert theory.network_cost(2, [], 7, 11).total == 2 * 7 + 7 * 11
    assert theory.network_cost(2, [3, 5], 7, 11, as_printed=True).total == 2 * 3 * 5 * 7 + 77
    assert theory.dictionary_cost(4, 7, 6, 11, 2) == (4 * 6 + 4 * 6 + 8, 14, 77)
    assert theory.dictionary_cost(4, 7, 6, 11, 2, as_printed=True) == (216, 42, 77)


@pytest.mark.parametrize(("function", "arguments"), [
    (theory.nearest_distance_cdf, (0.5, 0)), (theory.nearest_distance_cdf, (-0.5, 3)),
    (theory.epsilon_max, ([1.0], 1.0, 3)), (theory.epsilon_max, ([-1.0], 0.5, 3)), (theory.epsilon_max, ([], 0.5, 3)),
    (theory.class_distances, (np.ones((1, 3)),)), (theory.safe_radius, (np.ones((1, 3)),)),
    (theory.mean_square_needed, ("a", 0.1)), (theory.n_parameters, (1.5, 1, 2)),
    (theory.deviation_bound, (2, 10, 0.1)), (theory.deviation_bound, (10, 10, 0.0)),
    (theory.images_needed, (0.0, 10, 0.05)), (theory.images_needed, (math.nan, 10, 0.05)),
    (theory.recovery_probability, (10, 0.0)), (theory.sparsity_limit, (10, 10)),
    (theory.label_probability, (0.1, -2.0, 0.2)), (theory.dictionary_cost, (4, 7, 6, 11, 5)),
    (theory.network_cost, (10, [-1], 5, 3)), (theory.network_cost, (10, None, 5, 3)),
])  # fmt: skip
def test_arguments_out_of_range_are_refused(function, arguments):
    with pytest.raises(UserError):
        function(*arguments)


# --- the command --------------------------------------------------------------------------------------------


def quantities(problem, *words):
    table = corrected_and_printed(problem, parser("theory").parse_args(words))
    return {row[0]: row[1:] for row in table.rows}


def test_nothing_follows_for_awa2_and_something_for_enough_images():
    rows = quantities(AWA2)
    assert rows["probability of a right label (Eq. 14) with these images"][0] == "nothing follows"
    assert not any("epsilon_max" in name for name in rows)  # no attributes are known
    rows = quantities(AWA2._replace(n_images=10**14, Z_unseen=2 * np.eye(10)))
    assert rows["probability of a right label (Eq. 14) with these images"][0] == "0.8574"
    # Equal classes leave no room for an error; Theorem 2 needs more atoms than features.
    rows = quantities(AWA2._replace(r=500, Z_unseen=np.zeros((10, 85))))
    assert rows["mean squared error that it needs"][0] == "0"
    assert rows["entries of a code that Theorem 2 allows"] == ["needs r > p"] * 2


def test_the_command_on_a_dataset(capsys):
    main(["theory", "--zeta", "0.3", "dataset=digits", "--n-atoms", "100"])
    out = " ".join(capsys.readouterr().out.split())
    assert "digits / pixels / fixed split" in out
    assert "r = 100 atoms, 3 unseen classes" in out
    for words in (["dataset=nonsense"], ["--n-atoms", "0"], ["--xi", "-1"]):
        with pytest.raises(SystemExit) as ended:
            main(["theory", *words])
        assert ended.value.code == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("zsl: ")
        assert captured.err.count("\n") == 1
