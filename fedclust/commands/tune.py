"""`fedclust tune`: a method's hyper-parameters chosen by validation examples."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from fedclust.config import schema
from fedclust.config.idle import naming_tests
from fedclust.config.tree import groups, roots
from fedclust.helpers.errors import ConfigError, DivergedError, UserError, require
from fedclust.helpers.prose import say
from fedclust.launch.checks import (
    check_choices,
    checked,
    choices_of,
    prepared,
    without_hydra,
)
from fedclust.launch.compose import Command, compose
from fedclust.launch.failures import TOLD, in_a_line, mistakes_told
from fedclust.launch.guard import check_hydra, hydra_of_its_own, importable
from fedclust.launch.sweep import report
from fedclust.launch.typed import Typed, alternatives, job_folder, parsed
from fedclust.launch.unread import shared_keys, without_effect
from fedclust.tuning.one_search import Search, compared_by
from fedclust.tuning.space import Value, space_of, written
from fedclust.tuning.tuned import with_values

HELP = """usage: fedclust tune [experiment=…] [algorithm=…] [trials=24] [KEY=VALUE …]

  algorithm=…             the method, or several; default: that of the experiment
  trials=24               the budget: that of this many complete trials, each with all tuning
                          seeds; default: 24, 8 with scale=laptop, 4 with scale=smoke
  tuning_seeds=[1000,…]   the seeds to tune with, apart from those of the runs to come
  KEY=VALUE               as for `fedclust run`; VALUE,VALUE,…, range(…), interval(…) and
                          tag(log,interval(…)) add a key to the search, a plain value takes it out
  objective=METRIC        validation_accuracy, or that of the task's score; or validation_loss,
                          or a score such as auroc, of validation examples

What is searched stands in conf/space: shared.yaml for every method, and a file per method. The
trials are in outputs/NAME-tuning; the same command continues a search. `fedclust run
tuned=outputs/NAME-tuning …` runs a method with the values that were found."""
_SHARE = 0.2  # of the training examples, where the config does not say
_OWN = ("trials", "tuning_seeds")
_DRAWN = (
    "every seed draws test rows of its own, so tuning seeds train on rows that the runs to come "
    "are tested on; dataset.data_seed=0, here and there, keeps those apart"
)


def command(arguments: Sequence[str]) -> None:
    """Search for every method and federation that the arguments name, one after the other.

    One of several that cannot be is told, the others are made, and the exit status is the worst.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return
    typed = Typed.of_keys(arguments, "tune")
    console = Console(stderr=True)
    with mistakes_told(console, typed.own):
        with hydra_of_its_own(typed), importable(typed.own):
            folders, status = _search_all(typed, console)
        for folder in sorted(folders):
            report(folder, Console())
    if status:
        sys.exit(status)


@dataclass
class _Teller:
    """Tells each line once; the only search ends with its error, one of several is passed over.

    `status` is the worst exit status so far.
    """

    console: Console
    alone: bool
    status: int = 0
    _told: set[str] = field(default_factory=set)

    def warn(self, line: str, _: bool = False, style: str = "yellow") -> None:
        """Tell something of all searches."""
        if line not in self._told:
            say(self.console, line, style=style)
        self._told.add(line)

    def fail(self, error: UserError | DivergedError) -> None:
        """Tell why a search cannot be."""
        if self.alone:
            raise error
        self.warn(" ".join(f"fedclust: {error}".split()), style="red")
        self.status = max(self.status, getattr(error, "exit_status", 1))


def _search_all(given: Typed, console: Console) -> tuple[set[Path], int]:
    """Make all searches once checked; returns folders to report on and the worst exit status."""
    wanted, seeds, typed = _own_keys(given)
    each, asked = _split(typed)
    tell = _Teller(console, len(each) == 1)
    configs = [compose(one.texts, one.own) for one in each]
    methods = {str(config.hydra.runtime.choices.algorithm) for config in configs}
    prepared(typed, configs[0], methods)
    searches, folders = list[Search](), set[Path]()
    for config, one in zip(configs, each, strict=True):
        try:
            searches.append(_search(Command(typed, config), one, asked, seeds, tell))
        except UserError as error:
            tell.fail(error)
    _check_groups(searches, typed)
    if any(_draws_tests(search.config) for search in searches):
        tell.warn(_DRAWN)
    from fedclust.tuning.batches import OfSearches, TrialRunner, run_search  # and with it PyTorch

    shared = OfSearches()
    for search in searches:
        batches = TrialRunner(search, shared, console, TOLD, in_a_line)
        try:
            run_search(search, batches, wanted or search.budget, console)
            folders.add(search.folder.parent)
        except (UserError, DivergedError) as error:
            tell.fail(error)
    return folders, tell.status


def _draws_tests(config: DictConfig) -> bool:
    """Whether every seed draws test examples of its own from the rows of all."""
    has_seed = "test_share" in config.dataset and "data_seed" in config.dataset
    return has_seed and config.dataset.data_seed is None and not naming_tests(config.dataset)


def _own_keys(given: Typed) -> tuple[int | None, list[int], Typed]:
    """The budget if given, the tuning seeds, and all else that is typed, the last of each key."""
    latest = given.latest()
    for one in latest.overrides:
        allowed = "a search has tuning_seeds=[…]; seeds=… is for the runs with what it finds"
        require(one.key_or_group != "seeds", "seeds", one.get_value_string(), allowed)
    node = {
        one.key_or_group: one.get_value_string() if one.is_sweep_override() else one.value()
        for one in latest.overrides
        if one.key_or_group in _OWN
    }
    trials = node.get("trials")
    number = trials if isinstance(trials, int) and not isinstance(trials, bool) else None
    fits = "trials" not in node or (number is not None and 1 <= number <= 10_000)
    require(fits, "trials", trials, "a whole number in [1, 10000]")
    seeds = node.get("tuning_seeds", [1000, 1001, 1002])
    listed = isinstance(seeds, list)
    with suppress(ConfigError):  # whose message would name another key
        others = tuple(text for text in latest.texts if text.partition("=")[0] not in _OWN)
        typed = Typed(others, given.own, many=False)
        return number, schema.seed_list(seeds if listed else None), typed
    allowed = "a list of different whole numbers from 0 on, such as [1000,1001]"
    raise ConfigError(f"tuning_seeds={seeds} is not allowed: {allowed}")


def _split(typed: Typed) -> tuple[list[Typed], Typed]:
    """Of every search the overrides of its jobs; and what is typed for all of them.

    A choice of several methods or federations, typed or an experiment's, is a search for each.
    """
    check_choices(Command(typed))  # before anything is composed
    known, own = groups(typed.own), typed.own
    pairs = list(zip(typed.overrides, typed.texts, strict=True))
    plain = tuple(text for one, text in pairs if not one.is_sweep_override())
    params = compose(plain, own).hydra.sweeper.get("params") or {}
    there = {one.key_or_group for one in typed.overrides}
    several = {
        text: one for one, text in pairs if one.is_sweep_override() and one.key_or_group in known
    }
    asked = tuple(text for text in typed.texts if text not in several)
    swept = parsed([f"{key}={value}" for key, value in params.items() if key not in there], own)
    chosen = [
        [f"{one.get_key_element()}={value}" for value in alternatives(one)]
        for one in (*several.values(), *swept)
    ]
    each = [Typed((*plain, *some), own, many=False) for some in product(*chosen)]
    return each, replace(typed, texts=asked)


def _check_groups(searches: Sequence[Search], typed: Typed) -> None:
    """Refuse several choices of a part that a method does not read: they are one search."""
    for one in typed.overrides:
        group = one.key_or_group
        if not one.is_sweep_override() or group == "algorithm" or schema.is_setting(group):
            continue
        alike: dict[Any, list[Search]] = {}
        for search in searches:
            if group in search.choices:
                others = sorted((k, v) for k, v in search.choices.items() if k != group)
                alike.setdefault(str(others), []).append(search)
        for some in alike.values():
            methods = [OmegaConf.to_container(s.config.algorithm, resolve=True) for s in some]
            read = len(some) == 1 or any(method != methods[0] for method in methods)
            names = ",".join(search.choices[group] for search in some)
            require(read, group, names, f"algorithm={some[0].title} does not read it")


def _search(
    command: Command, typed: Typed, asked: Typed, seeds: Sequence[int], tell: _Teller
) -> Search:
    """A search, once what is asked for is checked.

    Args:
        typed: the overrides that gave it.
        asked: what is typed for all searches, sweeps among it.
    """
    check_hydra(command)
    choices, own = choices_of(command.config.hydra), typed.own
    config = without_hydra(command.config)
    require(config.get("tuned") is None, "tuned", config.get("tuned"), "null while tuning")
    config, resolved = checked(config, choices, typed, shared_keys(typed), tell.warn)
    both = sorted(set(schema.seed_list(resolved["seeds"])) & set(seeds))
    allowed = f"seeds that the runs to come do not have; theirs are {resolved['seeds']}"
    require(not both, "tuning_seeds", list(seeds), allowed)
    fixed = {one.key_or_group for one in asked.overrides if not one.is_sweep_override()}
    share = resolved["validation"]
    allowed = f"a share above 0, by which trials are compared; {_SHARE} where none is given"
    require(share > 0 or "validation" not in fixed, "validation", f"{share:g}", allowed)
    resolved = {**resolved, "validation": share or _SHARE}
    metric, changed = compared_by(resolved, own)
    config = with_values(
        config, {"seeds": list(seeds), "validation": resolved["validation"], **changed}
    )
    results = Path("outputs", f"{resolved['name']}-tuning")
    search = Search(
        config=config,
        choices=choices,
        overrides=list(typed.texts),
        space=space_of(config, choices["algorithm"], asked.overrides, roots(own), choices),
        metric=metric,
        rounds=resolved["rounds"],
        folder=results / job_folder(typed.texts, choices["algorithm"], results),
        own=own,
    )
    for line, _ in _without_effect(search, asked):
        tell.warn(line)
    return search


def _without_effect(search: Search, typed: Typed) -> list[tuple[str, bool]]:
    """What is typed and has no effect with any of the values, which are checked on the way."""
    from fedclust.config.values import check_method  # and with it PyTorch

    def told(values: Mapping[str, Value]) -> list[tuple[str, bool]]:
        return without_effect(search.with_values(values), search.resolved(values), typed)

    check_method(search.resolved(), search.own)
    lines = told({})
    for key, dimension in search.space.items():
        for value in dimension.probes():
            try:
                check_method(search.resolved({key: value}), search.own)
                with suppress(UserError):  # beside other values it is a trial that fails
                    idle = told({key: value})
                    lines = [line for line in lines if line in idle]
            except ConfigError as error:
                shown = written(value) if dimension.options else dimension.words()
                said = str(error)
                allowed = said.partition(" is not allowed: ")[2] or said
                raise ConfigError(f"{key}={shown} is not allowed: {allowed}") from error
    return lines
