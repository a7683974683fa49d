"""FedRep, a shared representation: Collins, Hassani, Mokhtari, Shakkottai, ICML 2021.

https://arxiv.org/abs/2102.07078, Algorithm 1. As FedPer, but a client first trains its head under
the received body, and then the body under that head.

Differs from the paper:
- Bodies are averaged by `aggregation`; the paper takes the plain mean.

Differs from the released code (lgcollins/FedRep), which also runs FedPer:
- Clients keep their own heads. There all of them share one state of tensors until they are sampled,
  so that who comes later starts from heads averaged over those before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from fedclust.algorithms.fedper import FedPer
from fedclust.algorithms.steps import each
from fedclust.core.calls import LocalResult, LocalWork
from fedclust.core.front import Clients, Train
from fedclust.core.types import Round
from fedclust.helpers.ranges import AtLeastOne


@dataclass(frozen=True, kw_only=True)
class FedRep(FedPer):
    """FedPer whose clients train head and body one after the other."""

    head_epochs: AtLeastOne = 10  # local epochs of the head; the body's are those of `solver`

    def _train(self, models: Tensor, clients: Clients, rnd: Round) -> LocalResult:
        """The head under the frozen body, then the body under the frozen head."""
        own = each(models)
        head = self._head(clients.layout, models.device)
        solver = replace(self.solver, epochs=self.head_epochs, steps=None)
        still = LocalWork(frozen=~head)
        heads = clients.train(Train(models, own, rnd.cohort, solver, still, purpose="head"))
        still = LocalWork(frozen=head)
        asked = Train(heads.params, own, rnd.cohort, self.solver, still, stays=head)
        bodies = clients.train(asked)
        return replace(bodies, steps=heads.steps + bodies.steps)
