"""`fedclust tune`: a method's hyper-parameters chosen by validation examples."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from rich.console import Console

from fedclust.config import schema
from fedclust.config.idle import naming_tests
from fedclust.config.parts import is_null
from fedclust.config.tree import groups, roots
from fedclust.helpers.errors import (
    ConfigError,
    DivergedError,
    RunFolderError,
    UserError,
    counted,
    require,
)
from fedclust.helpers.locks import lock, without_locks
from fedclust.helpers.prose import say
from fedclust.launch.arguments import user_dir, without_user_dir
from fedclust.launch.checks import check_choices, check_form, checked
from fedclust.launch.compose import compose
from fedclust.launch.failures import TOLD, in_a_line, tell_traceback
from fedclust.launch.guard import check_hydra
from fedclust.launch.job_folder import job_folder
from fedclust.launch.scales import parsed
from fedclust.launch.surroundings import hydra_of_its_own, importable
from fedclust.launch.sweep_report import report
from fedclust.launch.unread import refuse_unread, typed_keys, without_effect
from fedclust.runtime.progress import Said
from fedclust.runtime.shared_data import SharedData
from fedclust.tuning.space import (
    Dimension,
    Value,
    default_of,
    num_settings,
    space_of,
    written,
)
from fedclust.tuning.tuned import settings_of, with_values

if TYPE_CHECKING:
    from fedclust.tuning.record import Trial
    from fedclust.tuning.search import Proposal

HELP = """usage: fedclust tune [experiment=…] [algorithm=…] [trials=24] [KEY=VALUE …]

  algorithm=…             the method, or several; where none is given the default or the
                          experiment's
  trials=24               the budget: as many complete trials, of all tuning seeds each; where
                          none is given 8 with scale=laptop and 4 with scale=smoke
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
_TRIALS = {"laptop": 8, "smoke": 4}  # where none are given, by scale; else
_FULL = 24
# options by which a method looks at test examples
_LOOKS = {"cluster_choice": "test_loss", "data": "train_and_test"}


def command(arguments: Sequence[str]) -> None:
    """Search for every method and federation that the arguments name, one after the other.

    One of several that cannot be is told, the others are made, and the exit status is the worst.

    Args:
        arguments: as typed.

    Raises:
        UserError: for what cannot be searched.
        DivergedError: when every trial has failed.
        Interrupted: when a round has been saved; the same command continues.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return
    own, others = user_dir(arguments), without_user_dir(arguments)
    flags = [one for one in others if one.startswith("-")]
    if flags:
        raise ConfigError(f"fedclust tune has no flag {flags[0]}; `fedclust tune --help` shows all")
    check_form(others, own)
    console = Console(stderr=True)
    try:
        with hydra_of_its_own(own, others), importable(own):
            folders, status = _search_all(others, own, console)
        for folder in sorted(folders):
            report(folder, Console())
    except TOLD:
        raise
    except Exception as error:  # a mistake of a user's method, or of this program
        tell_traceback(error, console, own)
        sys.exit(1)
    if status:
        sys.exit(status)


def _search_all(given: Sequence[str], own: Path | None, console: Console) -> tuple[set[Path], int]:
    """Make every search that is asked for, once all that can be known beforehand is checked.

    Args:
        given: overrides as typed.
        own: the folder given with --config-dir.
        console: where to tell.

    Returns:
        The folders to report on, and the worst exit status.
    """
    wanted, seeds, typed = _own_keys(given)
    composed = partial(compose, own=own)
    asked_for = list(_searches(typed, composed, own))
    folders, status, told = set[Path](), 0, set[str]()

    def warn(line: str, _: bool = False) -> None:
        if line not in told:
            say(console, line, style="yellow")
        told.add(line)

    def fail(error: UserError | DivergedError) -> None:
        nonlocal status
        if len(asked_for) == 1:
            raise error
        line = " ".join(f"fedclust: {error}".split())
        if line not in told:
            say(console, line, style="red")
        told.add(line)
        status = max(status, getattr(error, "exit_status", 1))

    searches = list[_Search]()
    configs = [composed(list(overrides)) for overrides, _ in asked_for]
    methods = {str(config.hydra.runtime.choices.algorithm) for config in configs}
    refuse_unread(configs[0], typed, own, methods)
    for config, (overrides, asked) in zip(configs, asked_for, strict=True):
        try:
            searches.append(_Search.of(config, overrides, asked, seeds, own, warn))
        except UserError as error:
            fail(error)
    _check_groups(searches, typed)
    if any(_draws_tests(search.config) for search in searches):
        warn(_DRAWN)
    data, said = SharedData(), Said()
    for search in searches:
        try:
            search.run(wanted or search.budget, data, console, said.is_new)
            folders.add(search.folder.parent)
        except (UserError, DivergedError) as error:
            fail(error)
    return folders, status


def _draws_tests(config: DictConfig) -> bool:
    """Whether every seed draws test examples of its own from the rows of all."""
    has_seed = "test_share" in config.dataset and "data_seed" in config.dataset
    return has_seed and config.dataset.data_seed is None and not naming_tests(config.dataset)


def _own_keys(given: Sequence[str]) -> tuple[int | None, list[int], list[str]]:
    """The budget if it is given, the tuning seeds, and all other overrides.

    Raises:
        ConfigError: for values that cannot be, and for `seeds`, which no trial would have.
    """
    given = _last_of_each(given)
    typed = parsed(given)
    for one in typed:
        allowed = "a search has tuning_seeds=[…]; seeds=… is for the runs with what it finds"
        require(one.key_or_group != "seeds", "seeds", one.get_value_string(), allowed)
    node = {
        one.key_or_group: one.get_value_string() if one.is_sweep_override() else one.value()
        for one in typed
        if one.key_or_group in _OWN
    }
    trials = node.get("trials")
    whole = isinstance(trials, int) and not isinstance(trials, bool)
    fits = "trials" not in node or (whole and 1 <= trials <= 10_000)  # type: ignore[operator]
    require(fits, "trials", trials, "a whole number in [1, 10000]")
    seeds = node.get("tuning_seeds", [1000, 1001, 1002])
    listed = isinstance(seeds, list)
    with suppress(ConfigError):  # whose message would name another key
        others = [one for one in given if one.partition("=")[0] not in _OWN]
        return trials, schema.seed_list(seeds if listed else None), others  # type: ignore[return-value]
    allowed = "a list of different whole numbers from 0 on, such as [1000,1001]"
    raise ConfigError(f"tuning_seeds={seeds} is not allowed: {allowed}")


def _last_of_each(given: Sequence[str]) -> list[str]:
    """The overrides but for those that a later one of the same key takes the place of."""
    kept = dict[str, str]()
    for place, one in enumerate(parsed(given)):
        plain = one.type is OverrideType.CHANGE
        name = one.get_key_element() if plain else f"{place}"
        kept.pop(name, None)
        kept[name] = given[place]
    return list(kept.values())


def _searches(
    typed: Sequence[str], composed: Callable[[list[str]], DictConfig], own: Path | None
) -> Iterator[tuple[list[str], list[Override]]]:
    """Of every search the overrides of its jobs, and all that is typed.

    A choice of several methods or federations, typed or an experiment's, is a search for each.
    """
    check_choices(typed, own)
    known = groups(own)
    given = parsed(typed, own)
    plain = [one.input_line or "" for one in given if not one.is_sweep_override()]
    params = OmegaConf.to_container(composed(list(plain)).hydra.sweeper).get("params") or {}  # type: ignore[union-attr]
    there = {one.key_or_group for one in given}
    several = [one for one in given if one.is_sweep_override() and one.key_or_group in known]
    several += parsed([f"{key}={value}" for key, value in params.items() if key not in there], own)
    asked = [one for one in given if one not in several]
    keys = [one.get_key_element() for one in several]
    values = [
        list(one.sweep_string_iterator()) if one.is_sweep_override() else [one.value()]
        for one in several
    ]
    for combination in product(*values):
        chosen = [f"{key}={value}" for key, value in zip(keys, combination, strict=True)]
        yield [*plain, *chosen], asked


def _check_groups(searches: Sequence[_Search], typed: Sequence[str]) -> None:
    """Refuse several choices of a part that a method does not read: they are one search.

    Args:
        searches: all there are.
        typed: overrides as typed.

    Raises:
        ConfigError: naming the group and the method.
    """
    for one in parsed(typed, searches[0].own if searches else None):
        group = one.key_or_group
        if not one.is_sweep_override() or group == "algorithm" or schema.is_setting(group):
            continue
        alike: dict[Any, list[_Search]] = {}
        for search in searches:
            if group in search.choices:
                others = sorted((k, v) for k, v in search.choices.items() if k != group)
                alike.setdefault(str(others), []).append(search)
        for some in alike.values():
            methods = [OmegaConf.to_container(s.config.algorithm, resolve=True) for s in some]
            read = len(some) == 1 or any(method != methods[0] for method in methods)
            names = ",".join(search.choices[group] for search in some)
            method = some[0].choices["algorithm"]
            require(read, group, names, f"algorithm={method} does not read it")


@dataclass(frozen=True, kw_only=True)
class _Search:
    """One method on one federation.

    Attributes:
        config: as composed, without Hydra's part, with the tuning seeds and validation examples.
        choices: of every group.
        overrides: of every trial.
        space: what is searched, by key.
        metric: what is best.
        rounds: of a complete trial.
        folder: where it goes.
        own: the folder given with --config-dir.
    """

    config: DictConfig
    choices: Mapping[str, str]
    overrides: Sequence[str]
    space: Mapping[str, Dimension]
    metric: str
    rounds: int
    folder: Path
    own: Path | None

    @classmethod
    def of(
        cls,
        composed: DictConfig,
        overrides: Sequence[str],
        asked: Sequence[Override],
        seeds: Sequence[int],
        own: Path | None,
        warn: Callable[..., object],
    ) -> _Search:
        """Check what is asked for.

        Args:
            composed: with Hydra's part.
            overrides: that gave it.
            asked: overrides as typed, sweeps among them.
            seeds: to tune with.
            own: the folder given with --config-dir.
            warn: is told what has no effect.

        Raises:
            ConfigError: for what cannot be searched.
        """
        check_hydra(composed, overrides, many=False)
        named = composed.hydra.runtime.choices.items()
        choices = {str(k): v for k, v in named if not str(k).startswith("hydra")}
        config = copy.deepcopy(composed)
        with read_write(config), open_dict(config):
            del config["hydra"]
        require(config.get("tuned") is None, "tuned", config.get("tuned"), "null while tuning")
        config, resolved = checked(config, choices, overrides, typed_keys(overrides), own, warn)
        both = sorted(set(schema.seed_list(resolved["seeds"])) & set(seeds))
        allowed = f"seeds that the runs to come do not have; theirs are {resolved['seeds']}"
        require(not both, "tuning_seeds", list(seeds), allowed)
        fixed = {one.key_or_group for one in asked if not one.is_sweep_override()}
        share = resolved["validation"]
        allowed = f"a share above 0, by which trials are compared; {_SHARE} where none is given"
        require(share > 0 or "validation" not in fixed, "validation", f"{share:g}", allowed)
        share = share or _SHARE
        config = with_values(config, {"seeds": list(seeds), "validation": share})
        if not is_null(resolved, "task"):
            from fedclust.config.objects import Objects

            Objects(own).check(resolved["task"], "task")  # which imports a user's own
        metric = schema.objective_of({**resolved, "validation": share})
        score, _ = schema.headline_of(resolved)
        of_task = (f"validation_{score}", "validation_loss")
        if metric not in of_task:
            from fedclust.metrics.scores import NAMES

            bare, allowed = metric.removeprefix("validation_"), ", ".join((*of_task, *NAMES))
            require(bare in NAMES, "objective", metric, f"one of {allowed}")
            metric = f"validation_{bare}"
            each = {"objective": metric, "score_every": resolved["eval_every"]}
            config = with_values(config, each)
        algorithm = choices["algorithm"]
        results = Path("outputs", f"{resolved['name']}-tuning")
        search = cls(
            config=config,
            choices=choices,
            overrides=list(overrides),
            space=space_of(config, algorithm, asked, roots(own), choices),
            metric=metric,
            rounds=resolved["rounds"],
            folder=results / job_folder(overrides, algorithm, results),
            own=own,
        )
        for line in search._without_effect([one.input_line or "" for one in asked]):
            warn(line)
        return search

    def _without_effect(self, typed: Sequence[str]) -> list[str]:
        """What is typed and has no effect with any of the values, which are checked on the way.

        Args:
            typed: overrides as typed.

        Raises:
            ConfigError: for a value that a key forbids, naming the key, and what it may be.
        """
        from fedclust.config.build import check_method  # and with it PyTorch

        def told(values: Mapping[str, Value]) -> list[str]:
            return without_effect(
                with_values(self.config, values), self._resolved(values), typed, self.own
            )

        check_method(self._resolved({}), self.own)
        lines = told({})
        for key, dimension in self.space.items():
            for value in dimension.probes():
                try:
                    check_method(self._resolved({key: value}), self.own)
                    with suppress(UserError):  # beside other values it is a trial that fails
                        idle = told({key: value})
                        lines = [line for line in lines if line in idle]
                except ConfigError as error:
                    shown = written(value) if dimension.options else dimension.words()
                    said = str(error)
                    allowed = said.partition(" is not allowed: ")[2] or said
                    raise ConfigError(f"{key}={shown} is not allowed: {allowed}") from error
        return lines

    @property
    def higher(self) -> bool:
        """Whether more of the metric is better."""
        name, better = schema.headline_of(self._resolved({}))
        if self.metric == f"validation_{name}":
            return better == "higher"
        if self.metric == "validation_loss":
            return False
        from fedclust.metrics.scores import MEASURES

        return MEASURES[self.metric.removeprefix("validation_")].about.better == "higher"

    @property
    def budget(self) -> int:
        """Complete trials where none are asked for."""
        return _TRIALS.get(self.choices["scale"], _FULL)

    @property
    def default(self) -> dict[str, Value]:
        """The values of the first trial."""
        return {key: default_of(self.config, key) for key in self.space}

    def run(
        self, wanted: int, data: SharedData, console: Console, is_new: Callable[[str], bool]
    ) -> None:
        """What is left of the search, and its files.

        Args:
            wanted: complete trials that the budget is for.
            data: of the search before.
            console: where to tell.
            is_new: whether a line has not been said in this command.

        Raises:
            UserError, Interrupted: as a job.
            DivergedError: when every trial has failed.
        """
        from fedclust.tuning.batches import Batches
        from fedclust.tuning.record import (
            best_of,
            read_trials,
            same_search,
            write_best,
            write_trials,
        )
        from fedclust.tuning.search import next_batch, num_untried

        about = self._about()
        finite, seeds = num_settings(self.space, self.default), len(about["seeds"])
        most = wanted if finite is None else min(wanted, finite)
        sizes = counted(most, "trial"), counted(seeds, "seed"), counted(self.rounds, "round")
        line = f"{self.choices['algorithm']}: {' × '.join(sizes)}, over {', '.join(self.space)}"
        say(console, line)
        with _locked(self.folder, console):
            same_search(self.folder, about)
            trials = read_trials(self.folder, self.space, self.default)
            batches = Batches(
                title=self.choices["algorithm"],
                folder=self.folder / "trials",
                resolved=self._resolved,
                metric=self.metric,
                rounds=self.rounds,
                own=self.own,
                data=data,
                console=console,
                is_new=is_new,
                fatal=TOLD,
                in_a_line=in_a_line,
            )

            def following() -> int:
                untried = num_untried(self.space, self.default, trials)
                return next_batch(trials, wanted, self.rounds, untried)

            while number := following():
                left = wanted - self._spent(trials)
                for trial in batches.run(self._proposed(trials, number), left):
                    trials.append(trial)
                    self._tell(trials, best_of(trials, higher=self.higher), wanted, console)
                write_trials(self.folder, trials, list(self.space))
                batches.drop_files(trials[-number:])
            if next_batch(trials, wanted, self.rounds):
                all_ = counted(num_settings(self.space, self.default) or 0, "setting")
                self._say(f"all {all_} have been tried", trials, wanted, console)
            best = best_of(trials, higher=self.higher)
            if best is None:
                raise DivergedError(f"every trial has failed; the last one: {trials[-1].error}")
            settings = settings_of(self._resolved({}), self.space)
            more = {"default": trials[0].value, "trials": len(trials), "settings": settings}
            kept = {key: about[key] for key in ("choices", "metric", "seeds", "validation")}
            write_best(self.folder, best, {**kept, **more})

    def _spent(self, trials: Sequence[Trial]) -> float:
        """What has been computed, in complete trials."""
        return sum(one.rounds for one in trials) / self.rounds

    def _proposed(self, trials: Sequence[Trial], number: int) -> list[Proposal]:
        """The next batch."""
        from fedclust.tuning.search import Proposal

        batch: list[Proposal] = []
        for _ in range(number):
            before = [one.values for one in batch]
            batch.append(
                Proposal(
                    self.space,
                    self.default,
                    trials,
                    before,
                    higher=self.higher,
                    rounds=self.rounds,
                )
            )
        return batch

    def _about(self) -> dict[str, Any]:
        """What the search is."""
        from fedclust.runtime.folder import config_hash

        resolved = self._resolved({})
        return {
            "choices": {group: choice for group, choice in self.choices.items() if choice},
            "metric": self.metric,
            "seeds": list(resolved["seeds"]),
            "validation": resolved["validation"],
            "rounds": self.rounds,
            "space": {key: one.words() for key, one in self.space.items()},
            "default": {key: written(value) for key, value in self.default.items()},
            "config": config_hash(resolved),
        }

    def _resolved(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """The config of a trial.

        Raises:
            ConfigError: for values that no job may have.
        """
        from fedclust.runtime.other_ranks import NO_TRACKER

        given = [f"{key}={written(value)}" for key, value in values.items()]
        resolved = schema.resolve(
            with_values(self.config, values),
            {"choices": dict(self.choices), "overrides": [*self.overrides, *given]},
        )
        for key, value in _entries(resolved["algorithm"], "algorithm"):
            looks = _LOOKS.get(key.rpartition(".")[2])
            require(looks is None or value != looks, key, value, "tuning looks at no test examples")
        return {**resolved, "tracker": NO_TRACKER, "report": None}

    def _tell(
        self, trials: Sequence[Trial], best: Trial | None, wanted: int, console: Console
    ) -> None:
        """A line on the last trial."""
        trial = trials[-1]
        values = ", ".join(f"{key}={_short(value)}" for key, value in trial.values.items())
        became = trial.state if trial.value is None else f"{self.metric} {trial.value:.4f}"
        became += f": {trial.error}" if trial.error else ""
        leads = "" if best is None else f"; best {best.value:.4f}, trial {best.number + 1}"
        self._say(
            f"trial {trial.number + 1}", trials, wanted, console, f": {values}: {became}{leads}"
        )

    def _say(
        self, what: str, trials: Sequence[Trial], wanted: int, console: Console, more: str = ""
    ) -> None:
        """A line with what has been spent."""
        spent = self._spent(trials)
        line = f"{self.choices['algorithm']}, {what}, {spent:.1f} of {wanted} spent{more}"
        say(console, line)


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else written(value)


def _entries(node: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Every entry of a mapping and of those below it, by dotted key."""
    for name, value in node.items() if isinstance(node, Mapping) else ():
        yield f"{key}.{name}", value
        yield from _entries(value, f"{key}.{name}")


@contextmanager
def _locked(folder: Path, console: Console) -> Iterator[None]:
    """While one process searches, no other does.

    Raises:
        RunFolderError: if another one is at it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("ab") as file:
        try:
            told = [] if lock(file) else without_locks(file)
        except BlockingIOError:
            raise RunFolderError(
                f"{folder} is being searched by another process; wait, or change name=…"
            ) from None
        for line in told:
            say(console, line, style="yellow")
        yield
