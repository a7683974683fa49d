"""Test examples that every seed draws anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fakes import fake

from fedclust.core.federation import build
from fedclust.core.types import Federation
from fedclust.helpers.errors import DataError
from fedclust.partitions.from_file import FromFile
from fedclust.partitions.iid import IID
from fedclust.partitions.resplit import Resplit
from fedclust.partitions.rotated import Rotated


def owned(fed: Federation) -> list[list[int]]:
    return [
        sorted([*fed.train.of_client(i).tolist(), *fed.test.of_client(i).tolist()])
        for i in range(fed.num_clients)
    ]


def test_every_seed_tests_on_others_of_the_same_clients_examples(tmp_path: Path) -> None:
    dataset = fake(60, 20)
    table = tmp_path / "clients.csv"
    lines = [f"train,{row % 3},{row}" for row in range(60)]
    lines += [f"test,{row % 3},{row}" for row in range(60, 80)]
    table.write_text("\n".join(["split,client,row", *lines]))
    base = FromFile(path=str(table), base=IID(num_clients=3))
    before = build(dataset, base, 0)
    feds = [build(dataset, Resplit(base=base), seed) for seed in range(3)]
    for fed in feds:
        assert owned(fed) == owned(before)
        # a fifth, rounded up, of 27, 27 and 26
        assert fed.test.count.tolist() == [6, 6, 6]
        assert torch.equal(fed.pool.x, before.pool.x)
    tests = [fed.test.index.tolist() for fed in feds]
    assert tests[0] != tests[1] != tests[2]
    again = build(dataset, Resplit(base=base), 1)
    assert again.test.index.tolist() == tests[1]


def test_classes_keep_their_shares_and_groups_stay() -> None:
    dataset = fake(600, 200)
    base = Rotated(num_clients=4, num_rotations=4)
    fed, before = build(dataset, Resplit(base=base, test_share=0.25), 3), build(dataset, base, 3)
    assert fed.group.tolist() == before.group.tolist()
    for client in range(4):
        y = fed.pool.y[torch.tensor(owned(fed)[client])]
        share = fed.pool.y[fed.test.of_client(client)].bincount(minlength=10) / y.bincount(
            minlength=10
        )
        assert float((share - 0.25).abs().max()) < 0.1


def test_rows_of_one_unit_stay_together() -> None:
    dataset = fake(60, 20)
    unit = torch.arange(80) // 4
    fed = build(replace(dataset, unit=unit), Resplit(base=IID(num_clients=1), test_share=0.3), 0)
    assert len(fed.test.index)
    assert not set(unit[fed.test.index].tolist()) & set(unit[fed.train.index].tolist())


def test_what_cannot_be_split_is_refused(tmp_path: Path) -> None:
    dataset = fake(60, 20)

    def of(*lines: str) -> Resplit:
        table = tmp_path / "clients.csv"
        table.write_text("\n".join(["split,client,row", *lines]))
        return Resplit(base=FromFile(path=str(table), base=IID(num_clients=2)))

    alone = of("train,0,1", "train,0,2", "test,0,61", "train,1,3")
    with pytest.raises(DataError, match="client 1 has 1, not enough for both parts"):
        build(dataset, alone, 0)
    twice = of("train,0,1", "train,0,2", "train,1,2", "train,1,3")
    with pytest.raises(DataError, match="gives 1 example to several clients"):
        build(dataset, twice, 0)
