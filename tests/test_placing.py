"""Which model a new client gets: closed forms, and clients whose model is known."""

from __future__ import annotations

import numpy as np
import pytest

from fedclust.runtime.placing import by_inputs, by_loss, placed_rightly


def test_the_least_mean_loss_wins_and_resamples_say_how_surely() -> None:
    # each row speaks for one of two models, 3 to 1: the second wins a resample where it has less
    # than half of 4 draws with replacement, and the first also wins ties
    losses = np.array([[0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
    fit = by_loss(losses, seed=0)
    assert fit.place == 0
    # P(Bin(4, 1/4) <= 2) = 1 - 4 (1/4)^3 (3/4) - (1/4)^4 = 0.949
    assert fit.sure == pytest.approx(0.949, abs=0.03)
    assert by_loss(losses[:, :1], seed=0).sure == 1.0


def test_inputs_are_compared_as_distributions_and_not_by_their_means() -> None:
    rng = np.random.default_rng(0)
    near, wide = rng.normal(size=(80, 3)), 4 * rng.normal(size=(80, 3))
    new = 4 * rng.normal(size=(40, 3))
    fit = by_inputs(new, [near, wide], seed=0)
    assert (fit.place, fit.sure) == (1, 1.0)
    same = by_inputs(rng.normal(size=(40, 3)), [near, near], seed=0)
    assert same.place == 0  # of equals the first


def test_known_clients_are_held_against_the_others() -> None:
    rng = np.random.default_rng(1)
    middle = (0.0, 9.0, 0.0, 9.0, 4.0)
    inputs = [rng.normal(size=(30, 2)) + one for one in middle]
    model = np.array([0, 1, 0, 1, 2])  # the last has a model of its own, of which nothing is known
    assert placed_rightly(inputs, model, seed=0) == (4, 4)
    swapped = np.array([0, 0, 1, 1, 2])
    right, told = placed_rightly(inputs, swapped, seed=0)
    assert told == 4
    assert right < 4


def test_more_rows_than_are_looked_at_change_nothing_that_is_clear() -> None:
    rng = np.random.default_rng(2)
    far, near = rng.normal(size=(900, 2)) + 3, rng.normal(size=(900, 2))
    assert by_inputs(rng.normal(size=(700, 2)), [far, near], seed=3).place == 1
