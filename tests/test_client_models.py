"""Rows of all clients: what is shared, and that nothing given out ever changes."""

from __future__ import annotations

import pytest
import torch

from fedclust.core.types import ClientModels

CLIENTS, PARAMS = 7, 3
EVERYBODY = torch.arange(CLIENTS)


def rows_of(ids: list[int], t: int) -> torch.Tensor:
    return torch.tensor([[100.0 * t + client] * PARAMS for client in ids]).reshape(-1, PARAMS)


@pytest.mark.parametrize("together", [True, False])
def test_rounds_of_random_cohorts_are_those_of_one_tensor(together: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    models = ClientModels.alike(torch.zeros(1, PARAMS), CLIENTS)
    plain = torch.zeros(CLIENTS, PARAMS)
    before = [(models, plain)]
    for t in range(1, 30):
        size = int(torch.randint(0, CLIENTS + 1, (1,), generator=generator))
        ids = torch.randperm(CLIENTS, generator=generator)[:size].sort().values
        rows = rows_of(ids.tolist(), t)
        models, plain = models.replaced(ids, rows), plain.index_copy(0, ids, rows)
        assert len(models) == CLIENTS
        assert torch.equal(models[ids], rows)
        if together and t % 3 == 0:
            assert torch.equal(models.all(), plain)
        before.append((models, plain))
    for kept, expected in before:  # as they were, whatever came after
        assert torch.equal(kept[EVERYBODY], expected)
        assert torch.equal(kept.all(), expected)


def test_a_round_copies_the_rows_of_its_cohort_only() -> None:
    models = ClientModels.of(rows_of(EVERYBODY.tolist(), 0))
    after = models.replaced(torch.tensor([1, 4]), rows_of([1, 4], 1))
    pairs = zip(after._rows, models.all(), strict=True)
    shared = [mine.data_ptr() == its.data_ptr() for mine, its in pairs]
    assert shared == [True, False, True, True, False, True, True]


def test_a_row_does_not_hold_the_memory_of_its_cohort() -> None:
    models = ClientModels.alike(torch.zeros(1, PARAMS), CLIENTS)
    after = models.replaced(torch.tensor([1, 4]), rows_of([1, 4], 1))
    assert {row.untyped_storage().nbytes() for row in after._rows} == {4 * PARAMS}


def test_everybody_at_once_is_kept_without_a_copy() -> None:
    rows = rows_of(EVERYBODY.tolist(), 1)
    models = ClientModels.alike(torch.zeros(1, PARAMS), CLIENTS)
    assert models.replaced(EVERYBODY, rows).all().data_ptr() == rows.data_ptr()
    turned = models.replaced(EVERYBODY.flip(0), rows)
    assert torch.equal(turned.all(), rows.flip(0))


@pytest.mark.parametrize("together", [True, False])
def test_a_shared_row_is_saved_once(together: bool) -> None:
    models = ClientModels.alike(torch.zeros(1, PARAMS), CLIENTS)
    if together:
        models = models.replaced(EVERYBODY, rows_of(EVERYBODY.tolist(), 1))
    models = models.replaced(torch.tensor([1, 4]), rows_of([1, 4], 2))
    saved = models.saved()
    assert len(saved["rows"]) == (CLIENTS if together else 3)
    again = ClientModels.restored(**saved)
    assert torch.equal(again.all(), models.all())
    assert torch.equal(ClientModels.restored(**models.saved()).all(), models.all())  # one tensor


def test_rows_that_are_restored_share_what_they_shared() -> None:
    models = ClientModels.alike(torch.zeros(1, PARAMS), CLIENTS).replaced(
        torch.tensor([1]), rows_of([1], 1)
    )
    again = ClientModels.restored(**models.saved())
    assert len(again.saved()["rows"]) == 2
    after = again.replaced(torch.tensor([0]), rows_of([0], 2))
    assert len(after.saved()["rows"]) == 3
    assert torch.equal(again.all(), models.all())
