"""What every partition promises."""

import copy
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from configs import composed
from fakes import fake
from hydra.utils import instantiate
from refusals import refused

from fedclust.config.objects import parts
from fedclust.core.federation import build, digest
from fedclust.core.types import Dataset
from fedclust.core.verbs import Partition
from fedclust.datasets.synthetic import Synthetic
from fedclust.helpers.errors import UserError
from fedclust.helpers.ranges import hints_of
from fedclust.partitions.class_subsets import ClassSubsets
from fedclust.partitions.iid import IID
from fedclust.partitions.power_law import PowerLaw
from fedclust.partitions.rotated import Rotated

CONF = Path(__file__).parents[2] / "conf" / "partition"
# what suits 2000 training and 400 test examples of ten classes; a partition without an entry has
# the options of its YAML and a few clients
SETTINGS: dict[str, dict[str, Any]] = {
    "femnist10": {"num_clients": 30, "total": 900},
    "power_law": {"num_clients": 50},
    "class_subsets_emnist": {"num_clients": 16},
    "ditto": {"num_clients": 20, "total": 1500, "data_seed": None},
    "dirichlet": {"min_examples": 3},
    "dirichlet_balanced": {"min_examples": 3},
    "dirichlet_classes": {"num_clients": 20, "min_examples": 3},
    "dirichlet_label_groups": {"min_examples": 3},
    "majority_class": {"num_clients": 20},
    "class_pairs": {"num_clients": 10},
    "superclasses": {"num_clients": 20, "subsets": [[c % 10] for c in range(20)]},
    **{
        key: {"num_clients": 10, "min_per_cluster": 200}
        for key in ("class_missing", "class_overlap")
    },
}
# a table is one federation for all seeds, and flwr needs an extra; both have tests of their own
APART = ("from_file", "flwr")
NAMES = sorted(file.stem for file in CONF.glob("*.yaml") if file.stem not in APART)


# further options of some
MORE: dict[str, Partition] = {
    "rotated_capped": Rotated(num_clients=12, num_rotations=2, examples_per_client=30),
    "power_law_3": PowerLaw(num_clients=33, classes_per_client=3, max_per_class=150),
    "class_sizes": ClassSubsets(
        num_clients=8, subsets="random", cluster_sizes=[500, 400, 300, 600]
    ),
    "iid_power_law": IID(num_clients=50, sizes="power_law"),
}
PARTITIONS = [*NAMES, *MORE]


@cache
def made(name: str) -> Partition:
    """The partition as its YAML describes it, small, or one of `MORE`."""
    if name in MORE:
        return MORE[name]
    node = copy.deepcopy(composed(f"partition={name}")["partition"])
    owner = node
    while "base" in owner:
        owner = owner["base"]
    owner.update(({"num_clients": 12} if "num_clients" in owner else {}) | SETTINGS.get(name, {}))
    partition: Partition = instantiate(node)
    return partition


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    # seven devices of unequal size for `natural`
    return replace(fake(2000, 400), owner=torch.arange(2000).sqrt().long() % 7)


@pytest.mark.thinned
@pytest.mark.parametrize("name", PARTITIONS)
def test_same_seed_same_split_other_seed_another(name: str, dataset: Dataset) -> None:
    partition = made(name)
    one, two, other = (build(dataset, partition, seed) for seed in (0, 0, 1))
    assert digest(one) == digest(two)
    assert digest(one) != digest(other)
    assert torch.equal(one.pool.x, other.pool.x)  # the pool knows no seed


@pytest.mark.thinned
@pytest.mark.parametrize("name", PARTITIONS)
def test_no_client_trains_on_its_own_or_another_test_example(name: str, dataset: Dataset) -> None:
    fed = build(dataset, made(name), 3)
    train, test = set(fed.train.index.tolist()), set(fed.test.index.tolist())
    assert train.isdisjoint(test)
    assert int(fed.train.count.min()) >= 1
    assert len(fed.group) == len(fed.train.count) == len(fed.test.count)
    if name != "ditto":  # whose published generator starts a class again when it runs out
        assert len(train) == int(fed.train.count.sum())
        assert len(test) == int(fed.test.count.sum())


@pytest.mark.thinned
@pytest.mark.parametrize("name", PARTITIONS)
def test_tables_are_small_integers_and_leave_the_dataset_alone(name: str, dataset: Dataset) -> None:
    x, y = dataset.x_train.clone(), dataset.y_train.clone()
    fed = build(dataset, made(name), 0)
    for split in (fed.train, fed.test):
        assert split.index.dtype == torch.int32
        assert split.start.dtype == torch.int64
        assert int(split.start[-1]) == len(split.index)
    assert fed.group.dtype == torch.int64
    assert fed.pool.x.dtype == torch.uint8
    assert torch.equal(dataset.x_train, x)
    assert torch.equal(dataset.y_train, y)


@pytest.mark.thinned
@pytest.mark.parametrize("name", sorted(set(PARTITIONS) - {"natural"}))
def test_a_dataset_far_too_small_is_one_line(name: str) -> None:
    with refused(UserError) as error:
        build(fake(1, 1, num_classes=2), made(name), 0)
    assert "partition." in str(error.value) or "dataset" in str(error.value)


@pytest.mark.parametrize("name", ["rotated", "class_subsets", "ditto", "dirichlet"])
def test_a_dataset_without_a_test_set_points_to_natural(name: str) -> None:
    synthetic = Synthetic(num_devices=4, total=400).load()
    if name == "rotated":
        synthetic = replace(
            synthetic,
            x_train=torch.zeros(len(synthetic.x_train), 1, 2, 2),
            x_test=torch.zeros(0, 1, 2, 2),
        )
    with pytest.raises(UserError, match=r"has no test set: use partition=natural"):
        build(synthetic, made(name), 0)


NEEDED = {"num_rotations": 4, "subsets": "random"}
KINDS = [
    getattr(import_module(m), n) for m, _, n in (a.rpartition(".") for a in parts("partition"))
]


@pytest.mark.thinned
@pytest.mark.parametrize("kind", [one for one in KINDS if "num_clients" in hints_of(one)])
@pytest.mark.parametrize("num_clients", [0, -4, 2.5, "many"])
def test_num_clients_is_a_positive_whole_number(kind: type, num_clients: object) -> None:
    missing = {one.name for one in fields(kind) if one.default is MISSING}
    needed = {name: value for name, value in NEEDED.items() if name in missing}
    with pytest.raises(UserError, match=rf"\.num_clients={num_clients} is not allowed: an int"):
        kind(num_clients=num_clients, **needed)
