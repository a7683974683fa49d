"""What clients send of an update, in fewer bits than 32 for every number."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Compression(Protocol):
    """How a client sends an update in few bits."""

    @property
    def feedback(self) -> bool:
        """Whether a client keeps what an update has lost on the way, and adds it to its next one:
        error feedback.
        """
        ...

    def sent_bits(self, size: int) -> int:
        """The bits in which an update of d = `size` numbers is sent, at least 1 of them."""
        ...

    def __call__(self, updates: Tensor, keys: Tensor) -> Tensor:
        """What arrives of updates [C, d], [C, d] float32. Row i depends on update i and on the key
        i of its randomness, of `keys` [C] int64, alone.
        """
        ...
