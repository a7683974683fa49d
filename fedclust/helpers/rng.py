"""Stateless randomness: every number is a function of (seed, purpose, round, client, position).

Nothing reads or writes a global generator, so resuming needs no generator state, and what a client
draws does not depend on who else is in the call. Keys are 64-bit words; `fold` mixes an identity
into a key and `bits` turns a key into a stream of words (SplitMix64: Steele, Lea, Flood, OOPSLA
2014). The tensor functions give the same words on every device.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _signed(word: int) -> int:
    """The 64-bit word as a two's complement int, the only form torch's int64 takes."""
    return word - (1 << 64) if word >> 63 else word


def _mix(word: int) -> int:
    word = (word + _GOLDEN) & _MASK
    word = ((word ^ (word >> 30)) * _MULTIPLIERS[0]) & _MASK
    word = ((word ^ (word >> 27)) * _MULTIPLIERS[1]) & _MASK
    return word ^ (word >> 31)


def _shift_right(word: Tensor, by: int) -> Tensor:
    """Logical shift; `>>` on int64 would copy the sign bit."""
    return (word >> by) & ((1 << (64 - by)) - 1)


def _mix_tensor(word: Tensor) -> Tensor:
    """`_mix` on int64 tensors, whose products wrap modulo 2^64 as they should."""
    word = word + _signed(_GOLDEN)
    word = (word ^ _shift_right(word, 30)) * _signed(_MULTIPLIERS[0])
    word = (word ^ _shift_right(word, 27)) * _signed(_MULTIPLIERS[1])
    return word ^ _shift_right(word, 31)


def fold(key: Tensor, identity: Tensor | int) -> Tensor:
    """Keys [...] int64 with identities, broadcastable, mixed in: the numbers of `Stream.fold`."""
    mixed = _signed(_mix(identity & _MASK)) if isinstance(identity, int) else _mix_tensor(identity)
    return _mix_tensor(key ^ mixed)


def bits(key: Tensor, count: int) -> Tensor:
    """The first `count` words of each key's stream, [..., count] int64."""
    position = torch.arange(count, device=key.device, dtype=torch.int64)
    return _mix_tensor(key.unsqueeze(-1) + position * _signed(_GOLDEN))


def uniform(key: Tensor, count: int) -> Tensor:
    """`count` float32 numbers in [0, 1) per key, [..., count], with 24 random bits each."""
    return _shift_right(bits(key, count), 40).to(torch.float32) * 2.0**-24


def permutations(key: Tensor, length: Tensor, longest: int) -> Tensor:
    """A random order of range(length) per key, [..., longest] int64; those past `length` last."""
    position = torch.arange(longest, device=key.device)
    words = _shift_right(bits(key, longest), 1).masked_fill(
        position >= length.unsqueeze(-1), 2**63 - 1
    )
    if words.device.type != "cpu":
        return words.argsort(dim=-1)
    # five times faster than PyTorch's; both give one order, since real positions have different
    # words: two of 63 bits are the same once in 10^18 pairs
    return torch.from_numpy(np.argsort(words.numpy(), axis=-1))


@dataclass(frozen=True)
class Stream:
    """One named stream of randomness, by its 64-bit `key`."""

    key: int

    @classmethod
    def of(cls, seed: int, purpose: str, *identities: int) -> Stream:
        """The stream of (seed, purpose, identities...), e.g. `Stream.of(0, "cohort", t)`."""
        name = int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
        return cls(_mix((seed & _MASK) ^ name)).fold(*identities)

    def fold(self, *identities: int) -> Stream:
        """The stream with identities mixed in, one after the other."""
        key = self.key
        for identity in identities:
            key = _mix(key ^ _mix(identity & _MASK))
        return Stream(key)

    def keys(self, identities: Tensor) -> Tensor:
        """One key per identity, [C] int64: `self.fold(i)` for every i."""
        start = torch.full((), _signed(self.key), dtype=torch.int64, device=identities.device)
        return fold(start, identities)

    def numpy(self) -> np.random.Generator:
        """A fresh NumPy generator (Philox, counter-based) keyed by the stream."""
        return np.random.Generator(np.random.Philox(key=self.key))

    def torch(self) -> torch.Generator:
        """A fresh CPU generator; drawing on the CPU gives the same numbers for every device."""
        return torch.Generator().manual_seed(self.key >> 1)
