"""Updates in fewer bits. An update has d numbers of 32 bits.

| class | what arrives of v | bits |
|---|---|---|
| `TopK` | its k numbers of largest magnitude, else 0 | 32 k + min(k ceil(log2 d), d) |
| `RandomK` | k numbers at random places, else 0 | 32 k |
| `QSGD` | multiples of norm / s at random, s = 2^(b - 1) - 1 | b d + 32 ceil(d / bucket) |
| `Sign` | its signs times the mean magnitude | d + 32 |
| `Half` | its numbers rounded to 16 bits | 16 d |

The places of `TopK` are sent as indices, or as a bit for every number where that is shorter; those
of `RandomK` follow from a seed that the server knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from fedclust.helpers.ranges import AtLeastOne, Fraction, Range, Ranged
from fedclust.helpers.rng import permutations, uniform
from fedclust.helpers.rounding import rounded_down

_WHOLE = 32  # bits of a number that is sent as it is
_FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}


class NoCompression(Ranged):
    """Every number is sent."""

    feedback: ClassVar[bool] = False

    def sent_bits(self, size: int) -> int:
        return _WHOLE * size

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        return updates


@dataclass(frozen=True, kw_only=True)
class _Sparse(Ranged):
    """A few of the numbers are sent.

    Attributes:
        share: k / d, of the numbers of an update; k is rounded down, and at least 1.
        feedback: see `fedclust.core.compression.Compression`.
    """

    share: Fraction = 0.01
    feedback: bool = True

    def count(self, size: int) -> int:
        """k of d = `size` numbers."""
        return max(1, rounded_down(self.share, size))


@dataclass(frozen=True, kw_only=True)
class TopK(_Sparse):
    """The numbers of largest magnitude: Stich, Cordonnier, Jaggi, Sparsified SGD with memory,
    NeurIPS 2018, arXiv:1809.07599.
    """

    def sent_bits(self, size: int) -> int:
        k = self.count(size)
        return _WHOLE * k + min(k * (size - 1).bit_length(), size)

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        chosen = updates.abs().topk(self.count(updates.shape[1]), sorted=False).indices
        return _only(updates, chosen)


@dataclass(frozen=True, kw_only=True)
class RandomK(_Sparse):
    """Random numbers: Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599. Without feedback they are
    multiplied by d / k, so that what arrives is the update on average; with it they are as they
    are, or the memory would grow.
    """

    def sent_bits(self, size: int) -> int:
        return _WHOLE * self.count(size)

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        size = updates.shape[1]
        k = self.count(size)
        sent = _only(updates, permutations(keys, torch.full_like(keys, size), size)[:, :k])
        return sent if self.feedback else sent * (size / k)


@dataclass(frozen=True, kw_only=True)
class QSGD(Ranged):
    """Stochastic quantisation: Alistarh, Grubic, Li, Tomioka, Vojnovic, NeurIPS 2017,
    arXiv:1610.02132, section 3.1, in buckets as in its experiments. A number v_i becomes
    norm(v) sign(v_i) l / s, where l is one of the two whole numbers next to s |v_i| / norm(v), so
    that v_i is the mean. Numbers have a fixed length; the paper's Elias code is shorter where most
    of them are 0.
    """

    bits: Annotated[int, Range(2, 16)] = 4  # of a number, with its sign
    bucket: AtLeastOne = 512  # consecutive numbers that share a norm; the last ones are fewer

    feedback: ClassVar[bool] = False

    def sent_bits(self, size: int) -> int:
        return self.bits * size + _WHOLE * -(-size // self.bucket)

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        rows, size = updates.shape
        width, levels = min(self.bucket, size), 2 ** (self.bits - 1) - 1
        cells = pad(updates, (0, -size % width)).view(rows, -1, width)
        norm = cells.norm(dim=2, keepdim=True)
        exact = (cells.abs() / norm.clamp(min=torch.finfo(norm.dtype).tiny) * levels).clamp(
            max=levels
        )
        low = exact.floor()
        up = uniform(keys, cells[0].numel()).view_as(cells) < exact - low
        sent: Tensor = cells.sign() * norm * (low + up) / levels
        return sent.view(rows, -1)[:, :size]


@dataclass(frozen=True, kw_only=True)
class Sign(Ranged):
    """Signs times the mean magnitude, with error feedback: EF-SignSGD, Karimireddy, Rebjock, Stich,
    Jaggi, ICML 2019, arXiv:1901.09847, Algorithm 1. One bit has no third value, so 0 counts as
    positive.
    """

    feedback: ClassVar[bool] = True

    def sent_bits(self, size: int) -> int:
        return size + _WHOLE

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        scale = updates.abs().mean(1, keepdim=True)
        return scale.where(updates >= 0, -scale)


@dataclass(frozen=True, kw_only=True)
class Half(Ranged):
    """Rounding to the nearest number of 16 bits; what is larger than the largest becomes that."""

    # `float16` is exact to three digits up to 65,504, `bfloat16` to two without such a bound
    format: Literal["float16", "bfloat16"] = "float16"

    feedback: ClassVar[bool] = False

    def sent_bits(self, size: int) -> int:
        return _WHOLE // 2 * size

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        short = _FORMATS[self.format]
        most = torch.finfo(short).max
        return updates.clamp(-most, most).to(short).to(updates.dtype)


def _only(updates: Tensor, chosen: Tensor) -> Tensor:
    """Updates [C, d] with 0 but at the places `chosen` [C, k] of every row."""
    return torch.zeros_like(updates).scatter(1, chosen, updates.gather(1, chosen))
