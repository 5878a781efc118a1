"""The paper's theory: closed forms, what is monotone, a simulation of the distance law, and bounds that say nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from zsl import theory
from zsl.errors import UserError

# AwA2 with ResNet50 features and the fewest atoms that the paper allows.
N, P, Q, R = 23527, 2048, 85, 2049


def test_law_of_the_nearest_by_simulation(rng):
    # n points in the unit disc, distances from its centre: R(t) = t^2.
    n, t = 7, np.linspace(0.05, 0.95, 10)
    nearest = np.sqrt(rng.random((200_000, n))).min(axis=1)
    simulated = (nearest[:, None] <= t).mean(axis=0)
    assert_allclose(theory.nearest_law(t**2, n), simulated, atol=4 * 0.5 / np.sqrt(200_000))


def test_law_of_the_nearest_by_hand():
    assert_allclose(theory.nearest_law(0.5, 1), 0.5)
    assert_allclose(theory.nearest_law(0.5, 3), 1 - 1 / 8)
    assert_allclose(theory.nearest_law([0.0, 1.0], 9), [0, 1])
    assert_allclose(theory.nearest_law(1e-18, 10), 1e-17, rtol=1e-12)  # 1 - (1 - R)^n would round to 0
    with pytest.raises(UserError, match="n_points=0"):
        theory.nearest_law(0.5, 0)


@given(seed=st.integers(0, 1000), zeta=st.floats(0, 0.999), n=st.integers(1, 60))
def test_epsilon_max_is_where_the_law_passes_zeta(seed, zeta, n):
    distances = np.sort(np.random.default_rng(seed).random(30))
    epsilon = theory.epsilon_max(distances, zeta, n)

    def law(t):
        return theory.nearest_law(theory.distance_distribution(distances, t), n)

    assert law(np.nextafter(epsilon, 0)) <= zeta + 1e-9
    if epsilon < distances[-1]:
        assert law(epsilon) > zeta - 1e-9
    assert theory.epsilon_max(distances, zeta, n + 1) <= epsilon  # more rivals, less room
    assert theory.epsilon_max(distances, zeta / 2, n) <= epsilon


def test_epsilon_max_by_hand():
    distances = np.array([4.0, 1.0, 2.0, 3.0])
    # One rival: W = R. Half of the distances may lie below it.
    assert theory.epsilon_max(distances, 0.5, 1) == 3
    assert theory.epsilon_max(distances, 0.49, 1) == 2
    assert theory.epsilon_max(distances, 0.0, 1) == 1
    # Two rivals, zeta = 7/16: 1 - (3/4)^2, so R may be 1/4.
    assert theory.epsilon_max(distances, 7 / 16, 2) == 2
    assert theory.finest_zeta(4, 2) == pytest.approx(7 / 16)
    with pytest.raises(UserError, match="zeta=1"):
        theory.epsilon_max(distances, 1, 2)


def test_epsilon_max_of_uniform_distances():
    # R(t) = t: W(t) = zeta at t = 1 - (1 - zeta)^(1/n).
    distances = np.linspace(0, 1, 100_001)
    assert_allclose(theory.epsilon_max(distances, 0.05, 9), 1 - 0.95 ** (1 / 9), atol=1e-4)


def test_class_distances():
    Z = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert_allclose(theory.class_distances(Z), [1, math.sqrt(18), 5])
    assert_allclose(theory.safe_radius(Z), [0.5, math.sqrt(18) / 2, 0.5])
    assert_allclose(theory.safe_radius(Z[[0, 0, 1]]), [0, 0, 2.5])
    for function in (theory.class_distances, theory.safe_radius):
        with pytest.raises(UserError, match="at least two"):
            function(Z[:1])


@given(seed=st.integers(0, 1000))
def test_errors_below_the_safe_radius_change_no_label(seed):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(6, 3))
    radius = theory.safe_radius(Z)
    for m in range(6):
        error = rng.normal(size=3)
        z = Z[m] + 0.999 * radius[m] * error / np.linalg.norm(error)
        assert np.linalg.norm(Z - z, axis=1).argmin() == m


@given(seed=st.integers(0, 1000), share=st.floats(0.01, 1))
def test_markov_holds_for_any_errors(seed, share):
    errors = np.random.default_rng(seed).standard_cauchy(100)
    radius = math.sqrt((errors**2).mean() / share)  # where the mean square is just what is needed
    assert theory.mean_square_needed(theory.Distance(radius), share) == pytest.approx((errors**2).mean())
    assert (np.abs(errors) > radius).mean() <= share


def test_bound_by_hand():
    # lipschitz so small that the maximum is 1: capacity = 8 / 8; delta = 2 leaves no last term, so take it out.
    assert theory.capacity(8, 1e-3) == 1
    assert theory.capacity(80, 1.0) == pytest.approx(10 * math.log(6 * math.sqrt(8)))
    n, delta = 100, 2 * math.exp(-24)  # log(2 / delta) / 8 = 3
    assert theory.deviation_bound(n, 8, delta, 1e-3) == pytest.approx(3 * math.sqrt(math.log(100) / 100) + 0.2)


def test_the_bound_is_vacuous_at_the_size_of_awa2():
    entries = theory.n_parameters(P, Q, R)
    assert entries == 2133 * 2049
    # Unit features: a loss of 1 without any dictionary.
    assert 84 < theory.deviation_bound(N, entries, 0.05) < 87
    assert 3.5e10 < theory.images_needed(theory.MeanSquare(0.1), entries, 0.05) < 4.5e10


@given(
    deviation=st.floats(1e-3, 50),
    parameters=st.integers(1, 10**7),
    delta=st.floats(1e-9, 1),
    lipschitz=st.floats(1e-3, 1e6),
)
def test_images_needed_are_the_fewest(deviation, parameters, delta, lipschitz):
    n = theory.images_needed(deviation, parameters, delta, lipschitz)
    assert theory.deviation_bound(n, parameters, delta, lipschitz) <= deviation
    if n > 3:
        # One image less in a billion: the difference of one is below rounding for large n.
        fewer = min(n - 1, int(n * (1 - 1e-9)))
        if fewer >= 3:
            assert theory.deviation_bound(fewer, parameters, delta, lipschitz) > deviation * (1 - 1e-12)


@given(n=st.integers(3, 10**12), parameters=st.integers(1, 10**8), delta=st.floats(1e-9, 0.5))
def test_bound_is_monotone(n, parameters, delta):
    bound = theory.deviation_bound(n, parameters, delta)
    assert theory.deviation_bound(2 * n, parameters, delta) < bound
    assert theory.deviation_bound(n, 2 * parameters, delta) > bound
    assert theory.deviation_bound(n, parameters, delta / 10) >= bound
    assert theory.deviation_bound(n, parameters, delta, 10.0) > bound


def test_images_beyond_what_a_float_holds():
    n = theory.images_needed(theory.MeanSquare(1e-200), 10**6, 0.05)
    assert n > 10**400
    assert theory.deviation_bound(n, 10**6, 0.05) <= 1e-200


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan, math.inf])
def test_deviations_without_an_answer(deviation):
    with pytest.raises(UserError, match="no number of images"):
        theory.images_needed(deviation, 10, 0.05)


def test_theorem_2_corrected_and_as_printed():
    assert theory.recovery_probability(10, 0.1) == pytest.approx(1 - math.exp(-1))
    assert theory.recovery_probability_as_printed(10, 0.1) == pytest.approx(1 - math.e)
    assert theory.recovery_probability_as_printed(10**6, 1.0) == -math.inf
    assert theory.sparsity_limit(100, 271, 0.1) == pytest.approx(10 / math.log(2.71))
    assert theory.sparsity_limit_as_printed(100, 271, 0.1) == pytest.approx(10 * math.log(2.71))
    assert theory.sparsity_limit(P, R) == P  # never more entries than equations
    with pytest.raises(UserError, match="more atoms than features"):
        theory.sparsity_limit(10, 10)
    with pytest.raises(UserError, match="xi=0"):
        theory.recovery_probability(10, 0)


@given(p=st.integers(1, 5000), xi=st.floats(1e-6, 10), more=st.integers(1, 5000))
def test_theorem_2_is_a_probability_and_more_atoms_allow_fewer_entries(p, xi, more):
    assert 0 <= theory.recovery_probability(p, xi) <= 1
    assert theory.recovery_probability(p + 1, xi) >= theory.recovery_probability(p, xi)
    assert theory.recovery_probability_as_printed(p, xi) < 0  # the erratum: for every xi > 0
    assert theory.sparsity_limit(p, p + more + 1) <= theory.sparsity_limit(p, p + more)
    assert theory.sparsity_limit_as_printed(p, p + more + 1) >= theory.sparsity_limit_as_printed(p, p + more)


def test_product():
    assert theory.label_probability(0.1, 0.5, 0.2) == pytest.approx(0.9 * 0.5 * 0.8)
    assert theory.label_probability(0.1, 0.5, 0.2, share=0.5) == pytest.approx(0.9 * 0.5 * 0.8 * 0.5)
    with pytest.raises(UserError, match="recovery=-2"):
        theory.label_probability(0.1, -2, 0.2)


def test_costs_by_hand():
    assert theory.network_cost(2, [3, 5], 7, 11) == (2 * 3 + 3 * 5, 5 * 7, 7 * 11)
    assert theory.network_cost(2, [], 7, 11).total == 2 * 7 + 7 * 11
    assert theory.network_cost_as_printed(2, [3, 5], 7, 11).total == 2 * 3 * 5 * 7 + 77
    assert theory.dictionary_cost(4, 7, 6, 11, 2) == (4 * 6 + 4 * 6 + 8, 14, 77)
    assert theory.dictionary_cost_as_printed(7, 6, 11) == (216, 42, 77)
    with pytest.raises(UserError, match="0 to min"):
        theory.dictionary_cost(4, 7, 6, 11, 5)


def test_a_layer_adds_to_a_networks_cost_and_multiplies_the_printed_one():
    one, two = (theory.network_cost(P, [P] * n, Q, 10).total for n in (1, 2))
    assert two - one == P * P
    one, two = (theory.network_cost_as_printed(P, [P] * n, Q, 10).code for n in (1, 2))
    assert two / one == P


def test_nothing_shares_a_name_with_the_method():
    names = {name for function in vars(theory).values() if callable(function) and hasattr(function, "__code__")
             for name in function.__code__.co_varnames}  # fmt: skip
    assert not names & {"beta", "M", "L", "W", "lam", "gamma", "rho", "mu", "sigma"}
