"""What a dataset calls the parts of a federation, and what is told of them."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedclust.core.types import Dataset, Federation, Names
from fedclust.helpers.errors import some_of

_SHOWN = 8  # classes that a remark lists


def named(dataset: Dataset, fed: Federation, seed: int) -> Federation:
    """The federation of a seed with names and remarks: those of the dataset, and one each on
    clients without test examples and on classes that are tested and that nobody trains on.
    """
    remarks, without = dataset.remarks, int((fed.test.count == 0).sum())
    if without:
        verb = "has" if without == 1 else "have"
        remark = f"{without} of {fed.num_clients} clients {verb} no test examples"
        remarks = (*remarks, f"{dataset.name}: {remark}, and only the others are tested")
    fed = replace(fed, names=_names(dataset, fed), remarks=remarks, raw=dataset.raw)
    if not fed.names.classes or fed.pool.task.targets != "classes":
        return fed
    learnt, tested = (
        split.classes(fed.pool.y, fed.pool.num_classes).sum(0) > 0
        for split in (fed.train, fed.test)
    )
    untrained = torch.nonzero(tested & ~learnt).flatten().tolist()
    classes = [fed.names.classes[one] for one in untrained]
    if not classes:
        return fed
    what, more = ("class", "it is") if len(classes) == 1 else ("classes", "they are")
    which = some_of(classes, _SHOWN)
    remark = f"{dataset.name}: nobody trains on {what} {which} in seed {seed}, but {more} tested"
    return replace(fed, remarks=(*fed.remarks, remark))


def _names(dataset: Dataset, fed: Federation) -> Names:
    """What the dataset calls the parts of a federation, as far as these are its own: clients whose
    training rows are each of one natural client, their groups, and classes in one form only.
    """
    names, pool = dataset.names, fed.pool
    kept = Names(features=names.features, targets=names.targets)
    size = len(dataset.y_train) + len(dataset.y_test)
    if not pool.in_order or len(pool.y) != pool.concepts * size:
        return kept
    if pool.concepts == 1:
        kept = replace(kept, classes=names.classes)
    if dataset.owner is None or not names.clients:
        return kept
    owner, _ = fed.train.owner_and_place()
    whose = torch.cat([dataset.owner, dataset.owner.new_full((len(dataset.y_test),), -1)])
    if dataset.test_owner is not None:
        whose[len(dataset.owner) :] = dataset.test_owner
    natural = whose[fed.train.index.long() // pool.concepts]
    of_client = torch.full((fed.num_clients,), -1).index_copy(0, owner, natural)
    mixed = bool((of_client[owner] != natural).any()) or bool((of_client < 0).any())
    if mixed or len(set(of_client.tolist())) < fed.num_clients:
        return kept
    kept = replace(kept, clients=tuple(names.clients[one] for one in of_client.tolist()))
    grouped = dataset.group is not None and torch.equal(fed.group, dataset.group[of_client])
    return replace(kept, groups=names.groups) if grouped else kept
