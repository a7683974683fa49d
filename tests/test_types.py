"""Index tables, pools and cohorts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import toys
from pretend_cuda import CUDA, pretend_cuda

import fedclust.types
from fedclust.core import types as core
from fedclust.core.types import Cost, Pool, Round, Split
from fedclust.helpers.ops import on_host


def pool() -> Pool:
    x = torch.arange(24, dtype=torch.uint8).view(6, 1, 2, 2)
    return toys.pool_of(x, torch.arange(6) % 3, 3, scale=2.0, shift=-1.0)


def split() -> Split:
    return toys.split_of([[4, 1], [], [0, 2, 5]])


def round_of(num_clients: int = 50, t: int = 0, seed: int = 0) -> Round:
    return toys.round_of(toys.federation_of(pool(), [[0]] * num_clients), t, seed)


def test_a_split_gives_padded_rows_in_the_order_asked() -> None:
    index, count = split().take(torch.tensor([2, 0, 1]))
    assert index.tolist() == [[0, 2, 5], [4, 1, 0], [0, 0, 0]]
    assert count.tolist() == [3, 2, 0]
    assert split().count.tolist() == [2, 0, 3]
    assert split().of_client(0).tolist() == [4, 1]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_classes_of_clients_are_counted_once_per_labels(at_once: int) -> None:
    own, y = split(), torch.arange(6) % 3
    counts = own.classes(y, 3, at_once)
    assert counts.tolist() == [[0, 2, 0], [0, 0, 0], [1, 0, 2]]
    assert own.classes(y, 3) is counts
    assert own.classes(y, 4).tolist() == [[0, 2, 0, 0], [0, 0, 0, 0], [1, 0, 2, 0]]
    assert own.classes(torch.zeros(6, dtype=torch.int64), 3).tolist() == [
        [2, 0, 0],
        [0, 0, 0],
        [3, 0, 0],
    ]
    assert replace(own, index=own.index.flip(0)).classes(y, 3)[0].tolist() == [0, 0, 2]


def test_a_split_made_from_another_takes_its_own_rows() -> None:
    split = Split.of([torch.tensor([5, 7]), torch.tensor([2])])
    everybody = torch.arange(2)
    assert split.take(everybody)[0].tolist() == [[5, 7], [2, 0]]
    other = replace(split, index=split.index + 1)
    assert other.take(everybody)[0].tolist() == [[6, 8], [3, 0]]
    assert split.take(everybody)[0].tolist() == [[5, 7], [2, 0]]
    assert split.take(everybody.flip(0))[1].tolist() == [1, 2]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_more_and_more_clients_are_taken_as_by_a_split_that_was_asked_nothing_else(
    where: str,
) -> None:
    rows = [torch.arange(start, start + count) for start, count in ((3, 2), (9, 0), (1, 5), (7, 3))]
    split = Split.of(rows)
    for ids in ([1], [3, 0], [0, 2, 3], [2, 3], [0, 1, 2, 3], [1, 0], [3, 1, 0], []):
        clients = torch.tensor(ids, dtype=torch.int64)
        if where == "cpu":
            index, count = split.take(clients)
        else:
            with pretend_cuda():
                there = Split(split.index.to(CUDA), split.start.to(CUDA)).take(clients.to(CUDA))
                assert there[0].device == CUDA
                index, count = on_host(*there)
        assert count.tolist() == [len(rows[i]) for i in ids]
        assert index.shape == (len(ids), max(count.tolist(), default=0))
        for own, i in zip(index, ids, strict=True):
            assert own.tolist() == rows[i].tolist() + [0] * (len(own) - len(rows[i]))


def test_taking_nobody_is_empty() -> None:
    index, count = split().take(torch.tensor([], dtype=torch.int64))
    assert index.shape == (0, 0)
    assert len(count) == 0


def test_inputs_are_scaled_and_keep_their_shape() -> None:
    inputs = pool().inputs(torch.tensor([[0, 1], [5, 5]]))
    assert inputs.shape == (2, 2, 1, 2, 2)
    assert inputs[0, 1].flatten().tolist() == [7.0, 9.0, 11.0, 13.0]
    assert inputs.dtype == torch.float32
    assert pool().x.dtype == torch.uint8


def test_a_larger_sample_contains_the_smaller_one() -> None:
    rnd = round_of()
    everyone = torch.arange(50)
    ten, twenty = (set(rnd.sample(n, among=everyone).tolist()) for n in (10, 20))
    assert len(ten) == 10
    assert ten < twenty


def test_a_sample_depends_on_seed_and_round_and_not_on_the_company() -> None:
    everyone = torch.arange(50)
    samples = {
        (seed, t): tuple(round_of(t=t, seed=seed).sample(10, among=everyone).tolist())
        for seed in (0, 1)
        for t in (0, 1)
    }
    assert len(set(samples.values())) == 4
    again = tuple(round_of().sample(10, among=everyone.flip(0)).tolist())
    assert again == samples[0, 0]


@pytest.mark.full
def test_every_client_is_sampled_about_equally_often() -> None:
    everyone = torch.arange(50)
    times = torch.zeros(50)
    for t in range(400):
        times[round_of(t=t).sample(10, among=everyone)] += 1
    assert times.sum() == 4000
    # 80 expected, standard deviation 8
    assert times.min() > 80 - 40
    assert times.max() < 80 + 40


@pytest.mark.parametrize("count", [1, 49, 50])
def test_samples_are_sorted_and_distinct(count: int) -> None:
    sample = round_of().sample(count, among=torch.arange(50))
    assert sample.tolist() == sorted(set(sample.tolist()))
    assert len(sample) == count


def test_a_sample_leaves_out_who_drops_out_and_is_never_empty() -> None:
    rnd, everyone = round_of(), torch.arange(50)
    whole = rnd.sample(10, among=everyone)
    some = replace(rnd, dropped=(everyone == whole[3]) | (everyone == whole[7]))
    assert some.sample(10, among=everyone).tolist() == [
        i for n, i in enumerate(whole.tolist()) if n not in (3, 7)
    ]
    nobody = replace(rnd, dropped=everyone >= 0)
    assert torch.equal(nobody.sample(10, among=everyone), rnd.sample(1, among=everyone))
    assert nobody.staying(everyone[:0]).tolist() == []


def test_every_row_of_a_split_knows_its_client_and_its_place() -> None:
    owner, place = split().owner_and_place()
    assert owner.tolist() == [0, 0, 2, 2, 2]
    assert place.tolist() == [0, 1, 0, 1, 2]


def test_costs_add_up_and_the_later_loss_and_notes_count() -> None:
    numbers = ("models_down", "models_up", "floats_down", "floats_up", "scalars_up")
    numbers += ("gradient_steps", "forward_passes", "backward_passes")
    first = Cost(**{name: i for i, name in enumerate(numbers)}, train_loss=2.0, notes={"a": 1})
    second = Cost(**dict.fromkeys(numbers, 10), notes={"a": 2, "b": 3})
    both = first.plus(second)
    assert [getattr(both, name) for name in numbers] == [10, 11, 12, 13, 14, 15, 16, 17]
    assert both.train_loss == 2.0
    assert both.notes == {"a": 2, "b": 3}
    assert first.plus(Cost(train_loss=0.5)).train_loss == 0.5


@pytest.mark.parametrize(
    "name",
    [
        "ClientModels",
        "Cost",
        "Dataset",
        "Evaluation",
        "Federation",
        "Pool",
        "Round",
        "Served",
        "Split",
    ],
)
def test_parts_of_ones_own_find_every_data_type_in_one_place(name: str) -> None:
    assert name in fedclust.types.__all__
    assert getattr(fedclust.types, name) is getattr(core, name)
