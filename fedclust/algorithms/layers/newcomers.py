"""Any method, and how well clients are served that have never taken part: with all labels, with a
few, or with none.

A client that has just arrived has no cluster. Most papers let it choose by the losses of its
labelled examples; FLUX (arXiv:2511.22305) and FEROMA (arXiv:2602.07671) by its inputs alone. Here
every method can be asked all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from fedclust.algorithms.parts.profiles import DescribesClients, fitted, nearest, placed
from fedclust.algorithms.steps import clients_with_data
from fedclust.core.front import Clients
from fedclust.core.traits import Traits
from fedclust.core.types import Cost, Round, Served, Split
from fedclust.core.verbs import Scenario
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.ops import cluster_mean
from fedclust.helpers.ranges import AtLeastOne
from fedclust.helpers.rng import permutations

Assign = Literal["method", "labels", "few", "unlabelled"]


@dataclass(frozen=True, kw_only=True)
class Newcomers(Wrapper):
    """A method whose clients that have never taken part are served in a given way.

    Each round adds two metrics: `newcomers_served`, the share of these clients that have a model,
    and, if each has one, `accuracy_newcomers`, their correct test examples / their number. (Some
    methods serve only a few of them before they take part, and those are other clients.) Its
    forward passes are among those of the round. Methods that serve mixtures of models keep their
    own way.
    """

    # of the data, for `unlabelled`
    descriptor: Annotated[DescribesClients, OnlyWith("assign", "unlabelled")]
    # to the model that fits a client best, by the loss of its `labels`, or of a `few` of them; or
    # to that of the clients whose inputs are like its own, `unlabelled`: of the nearest mean
    # descriptor of those who have taken part; or as the `method` does it
    assign: Assign = "unlabelled"
    # how many labelled examples a client has with `few`, drawn once
    examples: Annotated[AtLeastOne, OnlyWith("assign", "few")] = 10

    @property
    def traits(self) -> Traits:
        """As the base, but that losses or descriptors of those who have never taken part are sent,
        and that who is sampled matters, for that is who has taken part.
        """
        base, sampled = super().traits, ("participation", "clients_per_round")
        unused = {key: why for key, why in base.unused.items() if key not in sampled}
        return replace(base, unnoised="losses or descriptors of their data", unused=unused)

    def beside(self, scenario: Scenario, num_clients: int) -> str:
        """That of the base, and where everybody is sampled at once."""
        samples_all = getattr(scenario, "samples_all", None)
        if samples_all is None or not samples_all(num_clients):
            return super().beside(scenario, num_clients)
        told = (
            "every client is sampled in the round in which it arrives, so no client is new and no "
            "test of newcomers is recorded; lower participation"
        )
        return "; ".join(filter(None, (super().beside(scenario, num_clients), told)))

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """seen: [M] bool, who has taken part."""
        return {"seen": Tensor}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        state, cost = self.base.init(clients, rnd)
        return self.with_added(state, seen=torch.zeros_like(rnd.present)), cost

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, then a test of those who have never taken part."""
        after, cost = self.base.round(state, clients, rnd)
        after = self.with_added(after, seen=state.seen.index_fill(0, rnd.cohort, True))
        clients = clients.aside()
        served, ids = self.serve(after, clients, rnd), clients_with_data(rnd)
        has_model = served.label[ids[~after.seen[ids]]] >= 0
        if not len(has_model):
            return after, cost
        notes = {**cost.notes, "newcomers_served": float(has_model.double().mean())}
        if notes["newcomers_served"] == 1:
            result = clients.evaluate(replace(served, label=served.label.where(~after.seen, -1)))
            if int(result.count.sum()):
                task = rnd.fed.pool.task
                score = float(task.headline(result.sums.sum(0), result.count.sum()))
                notes[f"{task.score.name}_newcomers"] = score
        return after, replace(cost, notes=notes)

    def serve(self, state: Any, clients: Clients, rnd: Round) -> Served:
        """As the base, but for those who have never taken part."""
        served, ids = self.base.serve(state, clients, rnd), clients_with_data(rnd)
        old, new = ids[state.seen[ids]], ids[~state.seen[ids]]
        old = old[served.label[old] >= 0]
        if self.assign == "method" or served.weight is not None or not len(new):
            return served
        if self.assign == "unlabelled":
            if not len(old):
                return served
            found = self._by_inputs(served, old, new, clients, rnd)
        else:
            if self.assign == "few":
                clients = clients.at(self._few(new, rnd))
            found = clients.loss(served.models, new).argmin(1)
        return replace(served, label=served.label.index_copy(0, new, found))

    def _by_inputs(
        self, served: Served, old: Tensor, new: Tensor, clients: Clients, rnd: Round
    ) -> Tensor:
        """The model of those of `old` [A] whose inputs are like those of `new` [C], [C] int64; what
        describes inputs is the model that most of them use.
        """
        used, label = served.label[old].unique(return_inverse=True)  # type: ignore[no-untyped-call]
        common = int(label.bincount().argmax())
        encoder = served.models[used[common]].unsqueeze(0)
        blocks = self.descriptor.blocks(encoder, old, clients, rnd)
        scale = fitted(blocks)
        known = placed(blocks, scale)
        centre = cluster_mean(known, label, empty=known.new_zeros(len(used), known.shape[1]))
        profile = placed(self.descriptor.blocks(encoder, new, clients, rnd), scale)
        chosen: Tensor = used[nearest(profile, centre, rnd.fed.pool.num_classes)]
        return chosen

    def _few(self, new: Tensor, rnd: Round) -> Round:
        """The round in which `new` [C] have some of their examples, the same in every round."""
        train = rnd.fed.train
        index, count = train.take(new)
        key = replace(rnd, t=0).stream("few labels").keys(new)
        order = permutations(key, count, index.shape[1])[:, : self.examples]
        few = index.gather(1, order).cpu()
        kept = dict(zip(new.tolist(), zip(few, count.tolist(), strict=True), strict=True))
        rows = [
            kept[i][0][: kept[i][1]] if i in kept else train.of_client(i).cpu()
            for i in range(rnd.fed.num_clients)
        ]
        return replace(rnd, fed=replace(rnd.fed, train=Split.of(rows).to(new.device)))
