"""Clients move from concept to concept, step by step: concept drift.

The tables `feddrift_a`, `feddrift_b`, `feddrift_c` and `feddrift_w` are those of FedDrift's
released code (Jothimurugesan et al., AISTATS 2023, https://arxiv.org/abs/2206.00799,
microsoft/FedDrift, data/changepoints), for ten clients: there, a step lasts many rounds, trains on
new data and is tested on the data of the step after it, which `new_data` and `test=next` do.

ANDA's dynamic modes trND, trDR and trDA are `train=first`, `now` and `all`; teND and teDR are
`test=first` and `now`, unseen ones `test=next`. Stages are steps; its divergence without return is
`table=diverging`. Its repetition of a client's data is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedclust.core.types import Federation, Round, Split
from fedclust.helpers.errors import counted, require
from fedclust.helpers.ranges import AtLeastOne, AtLeastTwo, AtLeastZero
from fedclust.helpers.rng import Stream
from fedclust.helpers.rounding import rounded_up
from fedclust.scenarios.sampling import Sampling, shuffled, split_of

Published = Literal["feddrift_a", "feddrift_b", "feddrift_c", "feddrift_w"]
Drawn = Literal["sudden", "gradual", "staggered", "recurring", "diverging", "random"]

# a row per step, a digit per client
_PUBLISHED = {
    "feddrift_a": """
        0000000000 0100000000 0100000100 0111010100 0111010110 1011011010
        1001001010 1000101011 1000101001 1000101001 1000101001""",
    "feddrift_b": """
        0000000000 1110000000 1112220000 2212222100 2221222130 2321233130
        3321133210 3033133213 0033313223 0003311322 0003311322""",
    "feddrift_c": """
        0000000000 1112220000 1112220030 2211222130 2221232130 2321133130
        3323133210 3033313213 0033313223 0003311322 0003311322""",
    "feddrift_w": """
        0000000000 0000000000 0100000100 0100000100 0111010100 0111010110
        1111011110 1111011110 1111111111 1111111111 1111111111""",
}

_WITH_CONCEPTS = "partition=label_map, transform or class_transform"


def _shape(rows: Sequence[int]) -> str:
    """A table in a few words, by the lengths of its rows."""
    lengths = " and ".join(str(length) for length in sorted(set(rows)))
    return f"[{counted(len(rows), 'row')} of {lengths} entries]" if rows else "[]"


@dataclass(frozen=True, kw_only=True)
class Drift(Sampling):
    """Step s, `every` rounds long, gives client i its examples under concept table[s, i].

    A client keeps its examples; only the concept they are seen under changes, in training and in
    test data, unless `train` or `test` say otherwise. After the last step nothing changes any more.
    Group of a client: its concept; while a change is under way, the new one from the round on in
    which half of its examples have it.

    Attributes:
        table: a row per step with a concept for every client; or a published one, or one that is
            drawn by the seed from the concepts that clients begin with: `sudden`: every client
            changes to another concept at the step in the middle; `gradual`: likewise, over the
            whole of that step; `staggered`: each client at a step of its own, uniform from step 1
            on; `recurring`: every step adds 1 modulo the number of concepts; `random`: all concepts
            are drawn anew in every second step.
        every: rounds of a step.
        steps: rows of the tables that are drawn.
        width: rounds until a change is complete; 1: at once; None: at once, or a step where `table`
            is `gradual`. The part of a client's examples that has changed rises linearly, and
            examples that have changed stay so.
        new_data: whether every step has its own part of a client's training examples; the last one
            stays.
        train: a client trains on its examples under the concept of the step (`now`); on those of
            all steps so far, each under the concept of its step (`all`, with `new_data`); or as in
            step 0 for ever (`first`), which then is its group.
        test: concept of the test examples: `now`: that of the step; `next`: that of the next step,
            so that the last row of the table is for testing only; `first`: that of step 0.
            Validation examples have the concept of the step, or that of step 0 with `train: first`.
    """

    table: Published | Drawn | Sequence[Sequence[AtLeastZero]] = "staggered"
    every: AtLeastOne = 20
    steps: AtLeastTwo = 10
    width: AtLeastOne | None = None
    new_data: bool = False
    train: Literal["now", "all", "first"] = "now"
    test: Literal["now", "next", "first"] = "now"

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = f"1 to scenario.every={self.every} rounds"
        require(1 <= self.rounds_of_change <= self.every, "scenario.width", self.width, allowed)
        ahead = self.test == "next"
        allowed = "changes at once only, since clients are tested on the next concept anyway"
        require(not ahead or self.rounds_of_change == 1, "scenario.test", self.test, allowed)
        adds_up = self.train == "all"
        allowed = "with scenario.new_data=true and changes at once only"
        fits = self.new_data and self.rounds_of_change == 1
        require(not adds_up or fits, "scenario.train", self.train, allowed)
        if not isinstance(self.table, str):
            rows = [len(row) for row in self.table]
            least = 1 + ahead
            fits = len(rows) >= least and rows[0] >= 1 and len(set(rows)) == 1
            needed = f"at least {counted(least, 'row')}, a step each, of equal length"
            allowed = f"{needed}: a concept for every client, as in [[0,0,1],[0,1,1]]"
            require(fits, "scenario.table", _shape(rows), allowed)

    @property
    def rounds_of_change(self) -> int:
        """Rounds until a change is complete."""
        if self.width is None:
            return self.every if self.table == "gradual" else 1
        return self.width

    def remark(self, rounds: int) -> str:
        """Says so where a run ends before the first change."""
        first = self._first_step() * self.every
        if first < rounds:
            return ""
        return (
            f"no client changes within {counted(rounds, 'round')}: the first change can be at "
            f"round {first + 1}; raise rounds, or lower scenario.every"
        )

    def _first_step(self) -> int:
        """The first step in which the concept of a client can be another one."""
        if isinstance(self.table, str) and self.table not in _PUBLISHED:
            drawn = {"sudden": self.steps // 2, "gradual": self.steps // 2, "random": 2}
            return drawn.get(self.table, 1)
        rows = [list(row) for row in _PUBLISHED.get(str(self.table), "").split() or self.table]
        changes = (i for i in range(1, len(rows)) if rows[i] != rows[i - 1])
        return next(changes, len(rows))

    def rounds(self, fed: Federation, seed: int) -> Iterator[Round]:
        """Rounds without end; the concepts of step 0 are not a shift.

        Raises:
            ConfigError: the table does not fit the clients or the partition's concepts, or a client
                has too few examples for new ones in every step.
        """
        concepts = fed.pool.concepts
        needed = f"it needs a partition with concepts to move between: {_WITH_CONCEPTS}"
        require(concepts >= 2, "scenario", "drift", needed)
        _one_concept_each(fed)
        table = self._table(fed, seed)
        last = len(table) - 1 - (self.test == "next")
        examples = {
            name: _Examples.of(split, concepts, Stream.of(seed, f"drift_{name}"))
            for name, split in fed.splits.items()
        }
        train, test, held_out = examples["train"], examples["test"], examples.get("validation")
        if self.new_data:
            fewest = int(train.count.min())
            allowed = f"a client has {fewest} training examples for {last + 1} steps"
            require(fewest > last, "scenario.new_data", "true", allowed)

        def drift(rnd: Round, seen: Tensor) -> Round:  # noqa: ARG001
            step = min(rnd.t // self.every, last)
            into = rnd.t - step * self.every
            if into >= (self.rounds_of_change if step else 1):
                return replace(rnd, is_change=False)
            share = min(1.0, (into + 1) / self.rounds_of_change) if step else 1.0
            old, new = table[max(step - 1, 0)], table[step]
            trained = self._trained(train, table, step, share, last + 1)
            other = {"next": step + 1, "first": 0}.get(self.test)
            fixed = None if other is None else table[other]
            tested = test.under(old, new, share) if fixed is None else test.under(fixed, fixed, 1.0)
            if self.train == "first":
                old = new = group = table[0]
            else:
                group = new if share >= 0.5 else old
            changed = replace(
                rnd.fed,
                train=trained,
                test=tested,
                group=group,
                validation=None if held_out is None else held_out.under(old, new, share),
            )
            if rnd.t == 0:
                return replace(rnd, fed=changed, is_change=False)
            shifted = _differ(rnd.fed.train, trained)
            begins = into == 0 and bool(shifted.any())
            return replace(rnd, fed=changed, shifted=shifted, is_change=begins)

        return self.play(fed, seed, drift)

    def _trained(
        self, train: _Examples, table: Tensor, step: int, share: float, steps: int
    ) -> Split:
        """The training examples of a step of so many, of which `share` has changed."""
        part, parts = (step, steps) if self.new_data else (0, 1)
        if self.train == "all":
            return train.of_steps(table[: step + 1], parts)
        if self.train == "first":
            return train.under(table[0], table[0], 1.0, (0, parts))
        return train.under(table[max(step - 1, 0)], table[step], share, (part, parts))

    def _table(self, fed: Federation, seed: int) -> Tensor:
        """Concept of every client in every step, [steps, M] int64 on the federation's device."""
        if not isinstance(self.table, str):
            rows = [list(row) for row in self.table]
        elif self.table in _PUBLISHED:
            rows = [[int(digit) for digit in row] for row in _PUBLISHED[self.table].split()]
        else:
            return self._drawn(fed, seed).to(fed.group.device)
        named = self.table if isinstance(self.table, str) else _shape([len(row) for row in rows])
        allowed = f"it is for {len(rows[0])} clients, and the federation has {fed.num_clients}"
        require(len(rows[0]) == fed.num_clients, "scenario.table", named, allowed)
        highest, concepts = max(map(max, rows)), fed.pool.concepts
        allowed = f"it names concept {highest}, and the partition has 0 to {concepts - 1}"
        require(highest < concepts, "scenario.table", named, allowed)
        return torch.tensor(rows, device=fed.group.device)

    def _drawn(self, fed: Federation, seed: int) -> Tensor:
        """The table of a generator, [steps, M] int64."""
        concepts, num_clients = fed.pool.concepts, fed.num_clients
        rng = Stream.of(seed, "drift").numpy()
        owner, _ = fed.train.owner_and_place()
        begin = torch.zeros(num_clients, dtype=torch.int64)
        begin[owner.cpu()] = (fed.train.index % concepts).long().cpu()
        step = torch.arange(self.steps).unsqueeze(1)
        if self.table == "recurring":
            return (begin + step) % concepts
        if self.table == "random":
            drawn = torch.from_numpy(rng.integers(0, concepts, (self.steps, num_clients)))
            return torch.where(step < 2, begin, drawn[step.squeeze(1) // 2 * 2])
        if self.table == "diverging":
            away = np.tile(np.arange(concepts), (num_clients, 1))
            away[:, 1:] = rng.permuted(away[:, 1:], axis=1)
            moved = torch.from_numpy(away).T[step.squeeze(1).clamp(max=concepts - 1)]
            return (begin + moved) % concepts
        other = (begin + torch.from_numpy(rng.integers(1, concepts, num_clients))) % concepts
        at = torch.full((num_clients,), self.steps // 2)
        if self.table == "staggered":
            at = torch.from_numpy(rng.integers(1, self.steps, num_clients))
        return torch.where(step < at, begin, other)


def _one_concept_each(fed: Federation) -> None:
    """Refuse clients whose examples are under several concepts: a change would give them one."""
    owner, _ = fed.train.owner_and_place()
    concept = fed.train.index.long() % fed.pool.concepts
    one = torch.zeros(fed.num_clients, dtype=torch.int64, device=concept.device)
    one[owner] = concept
    allowed = (
        "clients have examples of several concepts here, as with partition=mixture; it moves "
        f"clients between the concepts of {_WITH_CONCEPTS}"
    )
    require(bool((one[owner] == concept).all()), "scenario", "drift", allowed)


@dataclass(frozen=True)
class _Examples:
    """What clients own, whatever concept it is seen under."""

    # [total] int64 examples of the pool, client after client, in random order within each
    example: Tensor
    # owner, place: [total] client of every example, and its place among the client's
    owner: Tensor
    place: Tensor
    count: Tensor  # [M] examples of every client
    concepts: int  # G

    @classmethod
    def of(cls, split: Split, concepts: int, stream: Stream) -> _Examples:
        """The examples of a split."""
        example = shuffled(split, stream).index.long() // concepts
        return cls(example, *split.owner_and_place(), split.count, concepts)

    def under(
        self, old: Tensor, new: Tensor, share: float, part: tuple[int, int] = (0, 1)
    ) -> Split:
        """The split in which the first part of every client's examples, a `share` rounded up, has
        its `new` concept [M] instead of the `old` one; `part` (i, n) takes the i-th of n equal
        parts alone.
        """
        i, n = part
        first, end = self.count * i // n, self.count * (i + 1) // n  # [M]
        size = end - first
        among = (self.place >= first[self.owner]) & (self.place < end[self.owner])
        owner = self.owner[among]
        place = self.place[among] - first[owner]
        changed = rounded_up(share, size)
        concept = torch.where(place < changed[owner], new[owner], old[owner])
        index = self.example[among] * self.concepts + concept
        return split_of(index, size)

    def of_steps(self, concept: Tensor, steps: int) -> Split:
        """The split with the examples of the first S of `steps` equal parts, each under the
        `concept` [S, M] of its step.
        """
        part = torch.arange(1, len(concept) + 1, device=self.count.device).unsqueeze(1)
        end = self.count * part // steps  # [S, M]
        step = (self.place >= end[:, self.owner]).sum(0)
        among = step < len(concept)
        owner = self.owner[among]
        index = self.example[among] * self.concepts + concept[step[among], owner]
        size = end[-1]
        return split_of(index, size)


def _differ(before: Split, after: Split) -> Tensor:
    """Whose rows are not the same, [M] bool."""
    moved = before.count != after.count
    if len(before.index) != len(after.index) or bool(moved.any()):
        return torch.ones_like(moved)  # new data for all, in parts that differ by an example
    owner, _ = after.owner_and_place()
    return moved.index_fill(0, owner[before.index != after.index], True)
