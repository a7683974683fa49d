"""What a few leading directions tell of a client's examples, and the angles between them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.types import Round

_BLOCK = 2**21  # pairs of vectors in one piece of work


def principal_vectors(x: Tensor, num_vectors: int) -> Tensor:
    """The leading left singular vectors of the examples as columns, not centred, [d, p] float32.

    Columns past the rank of the examples are 0. The sign of a column means nothing.

    Args:
        x: [n, d] examples.
        num_vectors: p.
    """
    count, size = x.shape
    wide = x.double()
    # the smaller of the two product matrices has the same leading singular values
    gram = wide @ wide.T if count < size else wide.T @ wide
    square, vector = torch.linalg.eigh(gram)  # ascending
    square, vector = square.flip(0)[:num_vectors], vector.flip(1)[:, :num_vectors]
    if count < size:
        vector = wide.T @ vector / square.clamp(min=0).sqrt().clamp(min=1e-300)
    known = square > 1e-12 * square[:1]
    out = x.new_zeros(size, num_vectors, dtype=torch.float32)
    out[:, : len(square)] = vector.masked_fill(~known, 0).float()
    return out


def signatures(ids: Tensor, num_vectors: int, rnd: Round) -> Tensor:
    """The principal vectors of each client's training inputs, [C, d, p]; one client's inputs at a
    time.

    Args:
        ids: [C] int64.
        num_vectors: p.
        rnd: the round.
    """
    pool = rnd.fed.pool
    found = [
        principal_vectors(pool.inputs(rnd.fed.train.of_client(client)).flatten(1), num_vectors)
        for client in ids.tolist()
    ]
    return torch.stack(found)


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """Angles between subspaces in degrees, [C, K, p] float32 in [0, 90], ascending.

    The cosines of the principal angles are the singular values of A'B (Björck, Golub, Mathematics
    of Computation 1973), so neither signs nor the choice of basis matter. There are as many angles
    as the smaller subspace has dimensions; the mean of them stands for the others, so that few
    examples bring a client neither near nor far. With nothing that meets nothing it is 90.

    Args:
        a: [C, d, p] with orthonormal columns, then zeros.
        b: [K, d, p] likewise.
    """
    pieces = []
    rank = dimensions(a).unsqueeze(1).minimum(dimensions(b)).unsqueeze(2)  # [C, K, 1]
    known = torch.arange(a.shape[2], device=a.device) < rank  # [C, K, p]
    step = max(1, _BLOCK // max(1, len(b) * a.shape[2] ** 2))
    for first in range(0, len(a), step):
        rows = a[first : first + step]
        product = torch.einsum("cdp,kdq->ckpq", rows, b)
        pieces.append(torch.linalg.svdvals(product).clamp(max=1).acos().rad2deg())
    angles = torch.cat(pieces)
    mean = angles.where(known, 0).sum(2, keepdim=True) / rank.clamp(min=1)
    return angles.where(known, mean.where(rank > 0, 90))


def dimensions(vectors: Tensor) -> Tensor:
    """How many columns of [C, d, p] are not zero, [C] int64."""
    return (vectors != 0).any(1).sum(1)
