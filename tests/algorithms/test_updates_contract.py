"""What every attack, aggregation and step of the server below conf/ promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from configs import composed, names
from planted import CLIENTS, federation

from fedclust.config.objects import Objects


def made(group: str, name: str) -> Any:
    """The part as its file describes it."""
    return Objects().make(composed(f"{group}={name}")[group], group)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", names("attack"))
def test_who_is_hostile_follows_from_the_seed(name: str) -> None:
    fed, attack = federation(), made("attack", name)
    found = [attack.hostile(fed, seed) for seed in range(8)]
    share = getattr(attack, "share", 0.0)
    assert [int(mask.sum()) for mask in found] == [round(share * CLIENTS)] * 8
    assert torch.equal(found[0], attack.hostile(fed, 0))
    assert len(torch.stack(found).unique(dim=0)) > 1 or share == 0


@pytest.mark.parametrize("name", names("attack"))
def test_forged_updates_follow_from_the_draws_and_leave_the_true_ones_alone(name: str) -> None:
    attack, honest, own = made("attack", name), drawn(5, 7), drawn(2, 7, seed=1)
    before = honest.clone(), own.clone()

    def sent() -> torch.Tensor:
        found: torch.Tensor = attack.updates(
            honest, own, [np.random.default_rng(i) for i in (3, 4)]
        )
        return found.clone()

    one = sent()
    assert one.shape == own.shape
    assert one.dtype == own.dtype
    assert bool(one.isfinite().all())
    assert torch.equal(one, sent())
    assert torch.equal(honest, before[0])
    assert torch.equal(own, before[1])
    assert torch.equal(one, own) == (not attack.forges)


@pytest.mark.parametrize("name", sorted({*names("aggregation")} - {"mean"}))
def test_order_and_far_updates_do_not_matter_and_equal_ones_stay(name: str) -> None:
    rule, updates, share = made("aggregation", name), drawn(9, 5, seed=1), drawn(9, seed=2).abs()
    share /= share.sum()
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(rule(updates, share), rule(updates[order], share[order]))
    one = updates[:1].repeat(9, 1)
    same = rule(one, share)
    torch.testing.assert_close(one[0] if same is None else same, one[0])
    # one update far away moves it by no more than the others lie apart
    spoiled = torch.cat([updates[:8], torch.full((1, 5), 1e6, dtype=torch.float64)])
    assert float(rule(spoiled, torch.full((9,), 1 / 9).double()).norm()) < 10


@pytest.mark.parametrize("name", names("server"))
def test_a_step_is_along_the_update_and_each_models_own(name: str) -> None:
    step = made("server", name)
    models, moved = drawn(3, 4), drawn(3, 4, seed=1)
    memory = torch.tensor(step.first, dtype=torch.float64).view(1, -1, 1).expand(3, -1, 4)
    after, kept = step(models, models + moved, memory)
    assert kept.shape == (3, len(step.first), 4)
    assert torch.equal((after - models).sign(), moved.sign())
    for k in range(3):
        alone = step(models[k : k + 1], (models + moved)[k : k + 1], memory[k : k + 1])
        torch.testing.assert_close(alone[0][0], after[k])
        torch.testing.assert_close(alone[1][0], kept[k])
    # who is not moved stays
    torch.testing.assert_close(step(models, models, memory)[0], models)
