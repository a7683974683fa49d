"""How clients get the models that are compared before a one-shot clustering.

LCFL (arXiv:2407.09360), Algorithm 1, lines 1-5.

Differs from the paper: by default the warm-up is what the released code (wenh06/LCFL ce77cdb,
algorithm.py:108, 295-343) does and what the published tables contain, rounds of FedAvg that count
as rounds. `mode: local` is the printed one.
Differs from the released code: clients never sampled in the warm-up train once before the metric
(`cover_all`); the code uses their initial model.

Two other papers' methods are LCFL with other parts. FL+HC (arXiv:2004.11791) compares `fresh`
updates and stops merging at a distance, `method.threshold`; here the number of clusters is given
unless that is set. One-shot clustering (Ghosh, Hong, Yin, Ramchandran 2019, arXiv:1906.06629)
solves every client's problem and aggregates robustly in each cluster; here a client takes 100 steps
and the aggregate is the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from torch import Tensor

from fedclust.algorithms.steps import clients_with_data, each, zeros
from fedclust.core.front import Clients, Train
from fedclust.core.solver import Solver
from fedclust.core.types import Cost, Round
from fedclust.helpers.effects import OnlyWith
from fedclust.helpers.errors import counted, typed
from fedclust.helpers.ranges import AtLeastOne, Fraction, Ranged

Mode = Literal["federated", "local"]


def unclustered(warmup: int, rounds: int, key: str) -> str:
    """A remark on a run that ends within the warm-up, which `key` sets; or empty."""
    if rounds > warmup:
        return ""
    shorter = f", or a shorter warm-up with {typed(key, rounds - 1)}" if rounds > 1 else ""
    return (
        f"no clusters were formed: clustering begins after {counted(warmup, 'round')} of warm-up, "
        f"and the run has {rounds}; take {typed('rounds', warmup + 1)} or more{shorter}"
    )


@dataclass(frozen=True, kw_only=True)
class Warmup(Ranged):
    """Training before the clustering.

    Attributes:
        mode: `federated` rounds of FedAvg, or `local` training alone.
        rounds: federated: rounds of FedAvg, part of the run's rounds.
        participation: federated: fraction of the clients per warm-up round; None samples as the run
            does.
        cover_all: federated: clients that were never sampled, and whose model the metric reads,
            train once before it is computed.
        fresh: federated: everybody trains once from the server's model before the metric is
            computed, so that it compares updates of one and the same model, as FL+HC does.
        steps: local: full-gradient steps, T in the paper.
        own_start: local: every client draws its own initial model; False starts all from the
            server's.
    """

    mode: Mode = "federated"
    rounds: Annotated[AtLeastOne, OnlyWith("mode", "federated")] = 5
    participation: Annotated[Fraction | None, OnlyWith("mode", "federated")] = None
    cover_all: Annotated[bool, OnlyWith("mode", "federated"), OnlyWith("fresh", False)] = True
    fresh: Annotated[bool, OnlyWith("mode", "federated")] = False
    steps: Annotated[AtLeastOne, OnlyWith("mode", "local")] = 10
    own_start: Annotated[bool, OnlyWith("mode", "local")] = True

    def remark(self, rounds: int) -> str:
        """A remark on a run of `rounds` rounds that ends before its clustering, or empty."""
        local = self.mode == "local"
        return "" if local else unclustered(self.rounds, rounds, "algorithm.warmup.rounds")

    def cohort(self, rnd: Round) -> Tensor:
        """Participants of a warm-up round, [C] int64 sorted."""
        if self.participation is None:
            return rnd.cohort
        ids = clients_with_data(rnd)
        return rnd.sample(max(1, round(self.participation * len(ids))), among=ids)

    def alone(
        self, common: Tensor, solver: Solver, clients: Clients, rnd: Round
    ) -> tuple[Tensor, Tensor, Cost]:
        """Local warm-up: `steps` full-gradient steps of every client from the server's model
        `common` [1, P], by the rate and the like of the solver, without communication.

        Returns:
            Who trained [A] int64, their models [A, P], and what it cost.
        """
        ids = clients_with_data(rnd)
        solver = replace(solver, batch_size=None, epochs=None, steps=self.steps)
        start, label = common, zeros(ids)
        if self.own_start:
            start = clients.init(rnd.stream("warmup"), len(ids))
            label = each(ids)
        local = clients.train(Train(start, label, ids, solver, purpose="warmup"))
        cost = Cost(
            models_down=0 if self.own_start else len(ids),  # the start comes from the server
            gradient_steps=int(local.steps.sum()),
            train_loss=float(local.loss.mean()),
        )
        return ids, local.params, cost

    def cover(
        self, common: Tensor, trained: Tensor, ids: Tensor, solver: Solver, clients: Clients
    ) -> tuple[Tensor, Tensor, Cost]:
        """Of the clients `ids` [A], whose models the metric reads, those whose model is missing
        train once from the server's; other arguments and the results are those of `alone`, and
        `trained` [M] bool says who has trained. The metric counts the way back.
        """
        missed = ids if self.fresh else ids[~trained[ids]]
        if self.mode == "local" or not (self.fresh or self.cover_all) or not len(missed):
            return ids[:0], common[:0], Cost()
        local = clients.train(Train(common, zeros(missed), missed, solver, purpose="cover"))
        cost = Cost(models_down=len(missed), gradient_steps=int(local.steps.sum()))
        return missed, local.params, cost
