"""Label rules, one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from zsl.checks import Positive
from zsl.errors import UserError
from zsl.inference import cosine, label_rule, nearest
from zsl.inference import rules as rule_book


def test_nearest_agrees_with_scipy(rng):
    from scipy.spatial.distance import cdist

    Z_hat, Z = rng.standard_normal((7, 5)), rng.standard_normal((3, 5))
    assert_allclose(nearest(Z_hat, Z), -cdist(Z_hat, Z, "sqeuclidean"))
    assert_allclose(cosine(Z_hat, Z), 1 - cdist(Z_hat, Z, "cosine"))


def test_distances_are_never_negative(rng):
    Z = 1e6 + rng.standard_normal((50, 5))
    assert (nearest(Z, Z) <= 0).all()


def test_cosine_of_a_zero_prediction_is_zero():
    assert_allclose(cosine(np.zeros((1, 2)), np.eye(2)), [[0, 0]])


@pytest.mark.parametrize("rule", [nearest, cosine])
def test_orders_do_not_matter(rng, rule):
    Z_hat, Z = rng.standard_normal((7, 5)), rng.standard_normal((3, 5))
    assert_allclose(rule(Z_hat[::-1], Z[::-1]), rule(Z_hat, Z)[::-1, ::-1])


def test_a_rule_is_given_what_it_names():
    @label_rule()
    def rule(Z_hat, *, weight: Positive = 1.0):
        return weight * len(Z_hat)

    given = {"Z_hat": np.eye(3), "Z_unseen": np.eye(2), "X": None}
    assert rule.rule(given, {"weight": 2.0}) == 6.0
    with pytest.raises(UserError, match=r"inference.rule.weight='x' is not accepted"):
        rule.rule(given, {"weight": "x"})
    with pytest.raises(UserError, match=r"inference.rule.mu does not exist; it has: weight"):
        rule.rule(given, {"mu": 5})

    def greedy(Z_hat, y_unseen):
        return y_unseen

    with pytest.raises(UserError, match="greedy asks for 'y_unseen', which is none of: Z_hat"):
        rule_book.find("labels", greedy)(given, {})


def test_rules_are_found_by_name_or_are_functions():
    assert rule_book.find("labels", "nearest").function is nearest
    assert rule_book.find("labels", cosine).name == "cosine"
    with pytest.raises(
        UserError, match=r"inference.labels=nearst does not exist .did you mean nearest\?.; it may be: "
    ):
        rule_book.find("labels", "nearst")


def test_distances_far_from_the_origin_are_those_near_it():
    # In single precision 73 % of the labels changed at an offset of 1e4, where exact distances change none.
    rng = np.random.default_rng(0)
    Z_hat, Z = rng.standard_normal((200, 20)).astype(np.float32), rng.standard_normal((5, 20)).astype(np.float32)
    far_hat, far = Z_hat + np.float32(1e4), Z + np.float32(1e4)
    exact = ((far_hat[:, None].astype(float) - far[None].astype(float)) ** 2).sum(axis=2)
    assert (nearest(far_hat, far).argmax(axis=1) == exact.argmin(axis=1)).all()
    assert nearest(far_hat, far).dtype == np.float32
