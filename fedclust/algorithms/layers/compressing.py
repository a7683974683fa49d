"""Any method whose clients send their updates compressed; see `fedclust.updates.compressions`.

Compressed is what the local training of a round has made of a model, `Train.purpose` "train",
without what stays with the client, `Train.stays`. The method computes with what has arrived, and so
does the client where it goes on from what it has sent. Running statistics, and what a method sends
besides, as the models of a warm-up before a clustering, momenta, gradients and descriptions of
data, are sent whole.

With error feedback a client compresses p = update + e, and keeps e = p - what arrives of p. The
memory e belongs to the client, whichever cluster's model it trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedclust.core.calls import LocalResult, MeanResult
from fedclust.core.compression import Compression
from fedclust.core.front import Clients, Layer, Train, mean_by_rows
from fedclust.core.kept import Kept
from fedclust.core.types import ClientModels, Cost, Round
from fedclust.core.verbs import Algorithm
from fedclust.core.wrapper import Wrapper
from fedclust.helpers.rng import fold

_AT_ONCE = 1 << 22  # numbers of updates that are compressed together


@dataclass(frozen=True)
class _Compressed(Layer):
    """Clients whose updates arrive compressed."""

    compression: Compression
    lost: Kept | None  # what earlier updates have lost; None without error feedback
    saved: list[int]  # bits, of every training

    def aside(self) -> Clients:
        return self.behind.aside()

    def train(self, asked: Train) -> LocalResult:
        result = self.behind.train(asked)
        if asked.purpose != "train" or not len(asked.ids):
            return result
        columns = torch.arange(self.layout.num_trained, device=result.params.device)
        if asked.stays is not None:
            columns = columns[~asked.stays[: len(columns)]]
        if not len(columns):
            return result
        whole = 32 * len(columns) - self.compression.sent_bits(len(columns))
        self.saved.append(whole * len(asked.ids))
        return replace(result, params=self._arrived(result.params, asked, columns))

    def train_mean(self, asked: Train) -> MeanResult:
        return mean_by_rows(self, asked)

    def _arrived(self, params: Tensor, asked: Train, columns: Tensor) -> Tensor:
        """What the server has of the models [C, P] that clients made."""
        ids, start, arrived = asked.ids, asked.begun, params.clone()
        keys = fold(self.rnd.stream("compression").keys(ids), _times(ids))
        own = None if self.lost is None else self.lost.of(asked.purpose, ids)
        rests = list[Tensor]()
        each = max(1, _AT_ONCE // params.shape[1])
        for first in range(0, len(ids), each):
            here = slice(first, first + each)
            made, begun = params[here][:, columns], start[here][:, columns]
            moves = made - begun
            whole = moves
            if self.lost is not None and own is not None:
                whole = moves + self.lost.rows[own[here]][:, columns]
            sent = self.compression(whole, keys[here])
            # to the bit where nothing is lost
            arrived[here, columns] = made.where(sent == moves, begun + sent)
            rest = torch.zeros_like(params[here])
            rest[:, columns] = whole - sent
            rests.append(rest)
        if self.lost is not None and own is not None:
            self.lost.keep(own, torch.cat(rests))
        return arrived


@dataclass(frozen=True, kw_only=True)
class _Compressing(Wrapper):
    """A method with what updates have lost."""

    compression: Compression

    @property
    def added(self) -> Mapping[str, type[Any]]:
        """lost, lost_places: see `fedclust.core.kept.Kept`."""
        return {"lost": ClientModels, "lost_places": Tensor} if self.compression.feedback else {}

    def init(self, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base; nothing has been lost."""
        lost = None
        if self.compression.feedback:
            width = clients.layout.num_params
            lost = Kept.nothing(rnd.fed.num_clients, width, rnd.present.device)
        return self._sent(self.base.init, clients, rnd, lost)

    def round(self, state: Any, clients: Clients, rnd: Round) -> tuple[Any, Cost]:
        """As the base, of what arrives."""
        lost = Kept(state.lost, state.lost_places) if self.compression.feedback else None

        def verb(clients: Clients, rnd: Round) -> tuple[Any, Cost]:
            return self.base.round(state, clients, rnd)

        return self._sent(verb, clients, rnd, lost)

    def _sent(
        self,
        verb: Callable[[Clients, Round], tuple[Any, Cost]],
        clients: Clients,
        rnd: Round,
        lost: Kept | None,
    ) -> tuple[Any, Cost]:
        """What a verb of the base returns of clients that compress, and what they send."""
        front = _Compressed(clients, self.compression, lost, [])
        after, cost = verb(front, rnd)
        added = {} if lost is None else {"lost": lost.rows, "lost_places": lost.places}
        less = sum(front.saved)
        return self.with_added(after, **added), replace(cost, bits_up=cost.bits_up - less)


def compressing(method: Algorithm, compression: Compression | None) -> Algorithm:
    """A method whose clients compress what they send; itself where they do not."""
    return method if compression is None else _Compressing(base=method, compression=compression)


def _times(ids: Tensor) -> Tensor:
    """How often each of the `ids` [C] stands before its place, [C] int64."""
    return (ids.unsqueeze(1) == ids).tril(-1).sum(1)
