"""Series in time cut into windows of a past and of what follows it, without leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Names
from fedclust.core.validation import drawn_test
from fedclust.helpers.errors import DataError
from fedclust.helpers.ranges import AtLeastOne, InnerFraction, Ranged
from fedclust.helpers.rounding import rounded_down

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Windows(Ranged):
    """How series are cut; what datasets of series share.

    A window is `length` steps, which a model sees, and the `horizon` steps behind them, whose first
    channel it predicts. The last part of every series is for testing: windows of training end
    before it, inputs and targets, and targets of tests lie in it whole. Inputs of tests may begin
    before it, as all that is past is known when a forecast is made. Windows of both begin at
    multiples of `stride` from the first step, so that a forecast of days is one of the same days.
    """

    length: AtLeastOne = 48  # steps of the past that a model sees
    horizon: AtLeastOne = 24  # steps that it predicts
    stride: AtLeastOne = 24  # steps from one window to the next
    test_share: InnerFraction = 0.25  # the part of every series that is its end, for testing

    def cut(
        self,
        name: str,
        series: Sequence[Values],
        clients: Sequence[str],
        group: Sequence[str] | None,
        *,
        scaled: bool = True,
        blocks: int | None = None,
    ) -> Dataset:
        """The windows of all clients: x [N, 1, C, length], y [N, horizon] in the unit of the
        series, float32 where that is enough and else float64.

        Args:
            series: of every client [steps, C], what is predicted first.
            clients, group: their names, and true groups or None.
            scaled: whether channels are standardised by the parts for training, each step once.
            blocks: equal stretches of time of every series, see `_in_blocks`; None where the end
                of every series is for testing.

        Raises:
            DataError: a series is too short for a window of training, or of tests.
        """
        if blocks is not None:
            return self._in_blocks(name, series, clients, group, scaled, blocks)
        parts: dict[bool, list[tuple[Values, Values]]] = {False: [], True: []}
        seen = []
        for client, one in zip(clients, series, strict=True):
            cut = len(one) - rounded_down(self.test_share, len(one))
            first = -(-max(cut - self.length, 0) // self.stride) * self.stride
            inside = max(len(one) - first - self.length, 0)  # behind the inputs of the first test
            late = len(one) - cut - inside
            behind = f"in its test part, but the {late} before a window begins:" * (late > 0)
            for needed, there, what in (
                (self.length + self.horizon, cut, "before its test part: dataset.length plus"),
                (self.horizon, inside, behind or "in its test part:"),
            ):
                if there < needed:
                    raise DataError(
                        f"{name}: client {client} has {there} of {len(one)} steps {what} "
                        f"dataset.horizon need {needed}; dataset.test_share={self.test_share:g} "
                        "decides where it begins"
                    )
            seen.append(one[:cut])
            for is_test, part in ((False, one[:cut]), (True, one[first:])):
                parts[is_test].append(self.pairs(part))
        mean, std = _moments(seen) if scaled else (np.zeros((1, 1)), np.ones((1, 1)))
        x, y, owner = {}, {}, {}
        for is_test, pairs in parts.items():
            past, ahead = (np.concatenate(side) for side in zip(*pairs, strict=True))
            whose = np.repeat(np.arange(len(pairs)), [len(mine) for mine, _ in pairs])
            x[is_test] = torch.from_numpy(((past - mean) / std).astype(np.float32)).unsqueeze(1)
            y[is_test] = torch.from_numpy(np.ascontiguousarray(ahead))
            owner[is_test] = torch.from_numpy(whose)
        if all(map(_fits_float32, y.values())):
            y = {is_test: ahead.float() for is_test, ahead in y.items()}
        made = self._dataset(name, x, y, owner, clients, group)
        return replace(made, raw={"less": mean.tolist(), "over": std.tolist()})

    def _in_blocks(
        self,
        name: str,
        series: Sequence[Values],
        clients: Sequence[str],
        group: Sequence[str] | None,
        scaled: bool,
        blocks: int,
    ) -> Dataset:
        """The windows that lie inside a block of time, inputs and targets. All windows of a block
        are on one side of every split, and every seed draws other blocks of each client for
        testing, so that splits of the series can be repeated.

        Channels are standardised by all steps, as the parts for training are others in each seed.
        """
        pairs, whose, unit = [], [], []
        needed = self.length + self.horizon
        for client, one in enumerate(series):
            if len(one) < needed * blocks:
                raise DataError(
                    f"{name}: client {clients[client]} has {len(one)} steps, and {blocks} blocks "
                    f"of dataset.length plus dataset.horizon need {needed * blocks}: lower "
                    "dataset.blocks"
                )
            ends = [rounded_down(place / blocks, len(one)) for place in range(blocks + 1)]
            for block, (begin, end) in enumerate(pairwise(ends)):
                begin = -(-begin // self.stride) * self.stride  # windows begin at the same hours
                if end - begin < needed:
                    continue
                pairs.append(self.pairs(one[begin:end]))
                whose += [client] * len(pairs[-1][0])
                unit += [client * blocks + block] * len(pairs[-1][0])
        mean, std = _moments(series) if scaled else (np.zeros((1, 1)), np.ones((1, 1)))
        past, ahead = (np.concatenate(side) for side in zip(*pairs, strict=True))
        x = torch.from_numpy(((past - mean) / std).astype(np.float32)).unsqueeze(1)
        y = torch.from_numpy(np.ascontiguousarray(ahead))
        y = y.float() if _fits_float32(y) else y
        owner, units = torch.tensor(whose), torch.tensor(unit)
        tests = drawn_test(owner, len(y), self.test_share, 0, None, units)
        parts = [{False: part[~tests], True: part[tests]} for part in (x, y, owner)]
        made = self._dataset(name, parts[0], parts[1], parts[2], clients, group)
        return replace(
            made,
            test_share=self.test_share,
            unit=torch.cat([units[~tests], units[tests]]),
            raw={"less": mean.tolist(), "over": std.tolist()},
        )

    def _dataset(
        self,
        name: str,
        x: Mapping[bool, Tensor],
        y: Mapping[bool, Tensor],
        owner: Mapping[bool, Tensor],
        clients: Sequence[str],
        group: Sequence[str] | None,
    ) -> Dataset:
        """Of examples, targets and owners for training and for testing."""
        known, numbers = np.unique(group or (), return_inverse=True)
        codes = torch.from_numpy(numbers.astype(np.int64))
        return Dataset(
            name=name,
            x_train=x[False],
            y_train=y[False],
            x_test=x[True],
            y_test=y[True],
            num_classes=self.horizon,
            scale=torch.ones(1, 1, 1),
            shift=torch.zeros(1, 1, 1),
            owner=owner[False],
            test_owner=owner[True],
            group=codes if group else None,
            names=Names(clients=tuple(clients), groups=tuple(map(str, known))),
        )

    def pairs(self, part: Values) -> tuple[Values, Values]:
        """Pasts [n, C, length] and what follows them [n, horizon], of a part [steps, C]."""
        whole = np.lib.stride_tricks.sliding_window_view(part, self.length + self.horizon, axis=0)
        some = whole[:: self.stride]  # [n, C, length + horizon]
        return some[:, :, : self.length], some[:, 0, self.length :]


def _fits_float32(y: Tensor) -> bool:
    """Whether float32 hides nothing of how targets differ, as it would of a counter's readings."""
    return float((y.float() - y).abs().max()) <= 1e-6 * float(y.std(correction=0))


def _moments(seen: Sequence[Values]) -> tuple[Values, Values]:
    """Mean and deviation of every channel over all training steps, [C, 1]; 1 where constant."""
    steps = np.concatenate(seen)
    std = steps.std(0)
    varies = (steps.max(0) > steps.min(0)) & (std > 0)  # the mean of equal fractions is rounded
    return steps.mean(0)[:, None], np.where(varies, std, 1)[:, None]
