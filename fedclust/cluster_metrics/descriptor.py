"""Distance of descriptors of clients' data: FLUX, Fenoglio et al., NeurIPS 2025, arXiv:2511.22305.

Every client sends moments of what its examples put into the last layer of the server's model, along
d fixed random directions: mean and standard deviation of all examples and of those of each class
(-1 for a class that it does not have), 2 d (1 + Y) numbers. With `cluster_method=dbscan
cluster_method.eps=knee cluster_method.min_samples=2` the number of clusters need not be known.

Differs from the released code (dariofenoglio98/FLUX 43aadbe, public/models.py:51-63, 860-1300):
- It describes what the convolutions put out; of a network with dense layers before the last that is
  more than what enters the last.
- An absent class is -1 in every number, as in the code, and enters the scale of its block: with
  label skew, absence is most of the distance.
- Directions are random and orthonormal; the code takes the principal ones of random points.
- Each of the four blocks (mean, deviation, those of the classes) is scaled to a mean square of 1
  over the clients; the code scales 22 blocks of its own, one for every class's mean and deviation.
- The deviation of a class of which a client has one example is 0.
`algorithm=flux` is the whole method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedclust.cluster_metrics.readout import last_width, projections
from fedclust.core.front import Clients
from fedclust.core.types import Round
from fedclust.helpers.errors import require
from fedclust.helpers.ops import distances, one_hot, symmetric
from fedclust.helpers.ranges import AtLeastOne, Ranged
from fedclust.helpers.rng import Stream

_KEY = "cluster_metric.directions"


@dataclass(frozen=True, kw_only=True)
class Descriptor(Ranged):
    """d(i, j) = ||z_i - z_j||, z the clients' scaled descriptors."""

    # d, at most the inputs of the model's last layer; None for one per class, as the released code
    # has it
    directions: AtLeastOne | None = 10

    num_components: ClassVar[None] = None
    needs_softmax: ClassVar[bool] = True  # what the last layer reads comes from its losses

    def __call__(
        self, clients: Clients, models: Tensor, common: Tensor, ids: Tensor, rnd: Round
    ) -> Tensor:
        blocks = [scaled(block) for block in self.blocks(common, ids, clients, rnd, key=_KEY)]
        whole = torch.cat(blocks, 1)
        return symmetric(distances(whole, whole))

    def blocks(
        self,
        model: Tensor,
        ids: Tensor,
        clients: Clients,
        rnd: Round,
        times: Tensor | None = None,
        *,
        key: str = "algorithm.descriptor.directions",
    ) -> list[Tensor]:
        """The clients' descriptors, not scaled, as the blocks of `moments`.

        Args:
            model: [1, P] whose last layer's inputs are described.
            ids: [C] int64 clients.
            times: [C, n] how often each training example counts; None for once.
            key: of the number of directions, for messages.

        Raises:
            ConfigError: if there are more directions than inputs.
        """
        width, given = last_width(clients), self._count(rnd.fed.pool.num_classes)
        allowed = f"at most the {width} inputs of the model's last layer"
        require(given <= width, key, given, allowed)
        directions = orthonormal(width, given).to(model.device)
        latent = projections(model, directions, ids, clients, rnd)  # [C, n, d]
        return moments(latent, ids, rnd, times)

    def _count(self, num_classes: int) -> int:
        return num_classes if self.directions is None else self.directions

    def reads(self, ids: Tensor, rnd: Round) -> Tensor:
        """Nobody's model."""
        return ids[:0]

    def transfers(self, num_clients: int, num_classes: int) -> tuple[int, int, int]:
        """The server's model goes to every client, and a descriptor comes back."""
        return num_clients, 0, num_clients * 2 * self._count(num_classes) * (1 + num_classes)


def orthonormal(width: int, count: int) -> Tensor:
    """Random orthonormal rows [count, width], the same in every run."""
    draw = torch.randn(width, count, generator=Stream.of(0, "directions").torch())
    rows: Tensor = torch.linalg.qr(draw)[0].T.contiguous()
    return rows


def moments(latent: Tensor, ids: Tensor, rnd: Round, times: Tensor | None = None) -> list[Tensor]:
    """Means and standard deviations of `latent` [C, n, d], of anything past the count, over all
    examples of the clients `ids` [C] and over those of each class; each counts `times` [C, n], None
    for once.

    Returns:
        Mean [C, d], deviation [C, d], those of the classes [C, Y * d] each, -1 for absent ones.
    """
    index, count = rnd.fed.train.take(ids)
    real = torch.arange(index.shape[1], device=ids.device) < count.unsqueeze(1)
    member = one_hot(rnd.fed.pool.y[index], rnd.fed.pool.num_classes) * real.unsqueeze(2)
    # column 0 is of all examples
    weight = torch.cat([real.unsqueeze(2), member], 2).to(latent.dtype).transpose(1, 2)
    if times is not None:
        weight = weight * times.to(latent.dtype).unsqueeze(1)
    size = weight.sum(2, keepdim=True)  # [C, 1 + Y, 1]
    mean = weight @ latent / size.clamp(min=1)
    square = weight @ latent.square() / size.clamp(min=1)
    deviation = (square - mean.square()).clamp(min=0).sqrt()
    mean, deviation = (x.where(size > 0, -1) for x in (mean, deviation))
    return [x.flatten(1) for x in (mean[:, 0], deviation[:, 0], mean[:, 1:], deviation[:, 1:])]


def scaled(block: Tensor) -> Tensor:
    """The block [C, B] about its mean over the clients, with a mean square of 1 over all."""
    centred = block - block.mean(0)
    return centred / centred.square().mean().sqrt().clamp(min=1e-12)
