"""Which setting is tried next, and whether one is given up: Optuna, asked and told.

The trials of a batch do not know of each other, so that it is computed together. A proposal follows
from trials, values before it in the batch, and its number: interrupted searches go on the same.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedclust.helpers.errors import ConfigError
from fedclust.helpers.extras import install
from fedclust.tuning.record import Trial, comparable
from fedclust.tuning.space import Dimension, Value, is_inside, num_settings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_RANDOM = 8  # trials before the sampler looks at any
_BATCH = 8  # most trials that are proposed at once
_WITHOUT_PRUNING = 5  # complete trials before one is given up
_MOST = 2  # times as many trials as asked for, where many fail or are given up


def next_batch(
    trials: Sequence[Trial], wanted: int, rounds: int, untried: int | None = None
) -> int:
    """How many trials are proposed next, none once the budget of `wanted` complete ones is spent.

    A trial that was given up, or failed, gives back the rounds it has not computed: another one
    begins while a whole one fits.

    Args:
        untried: settings that no trial has had; None where they are without end.
    """
    left = wanted - -(-sum(one.rounds for one in trials) // rounds)
    most = left if untried is None else min(left, untried)
    return max(0, min(_BATCH, most, _MOST * wanted - len(trials)))


def num_untried(
    space: Mapping[str, Dimension], default: Mapping[str, Value], trials: Sequence[Trial]
) -> int | None:
    """How many settings no trial has had; None where they are without end."""
    size = num_settings(space, default)
    if size is None:
        return None
    return size - len({_setting(space, one.values) for one in trials})


def _setting(space: Mapping[str, Dimension], values: Mapping[str, Value]) -> tuple[Value, ...]:
    return tuple(values[key] for key in space)


def _another(
    space: Mapping[str, Dimension], tried: Collection[tuple[Value, ...]], number: int
) -> dict[str, Value]:
    """The first setting that is not tried, from a place on that follows from the trial's number."""
    choices = [one.values() for one in space.values()]
    size = math.prod(map(len, choices))
    start = random.Random(number).randrange(size)
    for place in range(start, start + size):
        rest, values = place % size, list[Value]()
        for some in choices:
            rest, position = divmod(rest, len(some))
            values.append(some[position])
        if tuple(values) not in tried:
            return dict(zip(space, values, strict=True))
    raise ValueError("every setting has been tried")


def _first_untried(
    space: Mapping[str, Dimension],
    before: Sequence[Mapping[str, Value]],
    values: Mapping[str, Value],
) -> dict[str, Value]:
    """Options that no trial has had, in place of those of `values` that some trial before had."""
    found = dict[str, Value]()
    for key, one in space.items():
        left = [option for option in one.options if all(option != had[key] for had in before)]
        if one.whole and left and values[key] not in left:
            found[key] = left[0]
    return found


class Proposal:
    """The next trial of a search, or one of its next batch.

    Args:
        space: what is searched, by key.
        default: the values of the first trial, which may lie outside of the space.
        trials: all trials before this batch.
        batch: values of the trials of the batch before this one.
        higher: whether more of the metric is better.
        rounds: of a complete trial.

    Attributes:
        number: of the trial.
        values: by key.
    """

    def __init__(
        self,
        space: Mapping[str, Dimension],
        default: Mapping[str, Value],
        trials: Sequence[Trial],
        batch: Sequence[Mapping[str, Value]] = (),
        *,
        higher: bool,
        rounds: int,
    ) -> None:
        optuna = _optuna()
        ranges = {key: _distribution(one) for key, one in space.items()}
        self.number = len(trials) + len(batch)
        # a default outside of what is searched teaches the sampler nothing of it
        left_out = not is_inside(space, default)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that several dimensions at once are an experiment
            self._study = optuna.create_study(
                direction="maximize" if higher else "minimize",
                sampler=optuna.samplers.TPESampler(
                    seed=self.number,
                    n_startup_trials=_RANDOM - left_out,
                    multivariate=True,
                    constant_liar=True,  # not twice the same place in a batch
                ),
                pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=_WITHOUT_PRUNING,
                    n_warmup_steps=math.ceil(rounds / 3),
                    interval_steps=1,
                ),
            )
            states = optuna.trial.TrialState
            state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}
            # one that leaves clients out is judged by others' examples, so the sampler learns that
            # it failed
            judged = {one.number for one in comparable(trials)}
            some = [
                replace(one, state="failed", value=None)
                if one.value is not None and one.number not in judged
                else one
                for one in trials
            ]
            known = [
                (one.values, state[one.state], one.value, {t + 1: v for t, v in one.curve.items()})
                for one in some
            ]
            known += [(values, states.RUNNING, None, {}) for values in batch]
            for values, became, value, curve in known[left_out:]:
                trial = optuna.trial.create_trial(
                    state=became,
                    value=value,
                    params=dict(values),
                    distributions=dict(ranges),
                    intermediate_values=curve,
                )
                self._study.add_trial(trial)
            if self.number == 0 and not left_out:
                self._study.enqueue_trial(dict(default))
            self._asked = self._study.ask(ranges)
        self.values: dict[str, Value] = dict(self._asked.params)
        if self.number == 0 and left_out:
            self.values = dict(default)
        before = [*(one.values for one in trials), *batch]
        if self.number:
            self.values |= _first_untried(space, before, self.values)
        if num_settings(space, default) is not None:
            tried = {_setting(space, one) for one in before}
            if _setting(space, self.values) in tried:
                self.values = _another(space, tried, self.number)

    def is_hopeless(self, t: int, value: float) -> bool:
        """Whether the trial is worse than the median of the complete ones up to round t, from 0."""
        self._asked.report(value, t + 1)
        return bool(self._asked.should_prune())


def _distribution(one: Dimension) -> BaseDistribution:
    optuna = _optuna()
    if one.options:
        return optuna.distributions.CategoricalDistribution(one.options)  # type: ignore[no-any-return]
    if one.step is not None:
        low, high = int(one.low), int(one.high)
        return optuna.distributions.IntDistribution(low, high, step=one.step)  # type: ignore[no-any-return]
    return optuna.distributions.FloatDistribution(one.low, one.high, log=one.log)  # type: ignore[no-any-return]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(f"fedclust tune needs Optuna: {install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
