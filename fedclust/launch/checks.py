"""What is refused before a job's parts are made: `CHECKS` of a command, `checked` of its jobs."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, IntervalSweep
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from fedclust.config import schema
from fedclust.config.schema import RunConfig
from fedclust.config.tree import choices, groups
from fedclust.helpers.errors import ConfigError, require
from fedclust.launch.compose import Command, compose
from fedclust.launch.guard import check_hydra
from fedclust.launch.scales import NONE, VIRTUAL, WITH_NONE, scales_of
from fedclust.launch.typed import Typed, alternatives
from fedclust.launch.unread import check_read, unread, why_unread, yield_to_typed
from fedclust.metrics import METRICS
from fedclust.tuning.tuned import apply_tuned, elsewhere

_GLOB = "glob(…) for the choices of a group, such as algorithm=glob(flexcfl*)"
_DIRECTIONS = {"higher": "maximize", "lower": "minimize"}


def prepared(
    typed: Typed, composed: DictConfig | None = None, methods: Collection[str] = ()
) -> Command:
    """What is typed, composed and checked; nothing has been written by then.

    Args:
        composed: the config, where the caller has it: of the first job.
        methods: by name, where the caller knows them.

    Raises:
        ConfigError: for what can be no job, naming the key.
        hydra.errors.HydraException: for what Hydra refuses.
    """
    command = Command(typed, composed, methods)
    for check in CHECKS:
        check(command)
    return command


def check_form(command: Command) -> None:
    """Refuse what is no KEY=VALUE; see `Typed.check_form`."""
    command.typed.check_form()


def check_choices(command: Command) -> None:
    """Refuse what is no name of a choice, and what is no bool where OmegaConf would make it one."""
    known = groups(command.typed.own)
    flags = {field.name for field in fields(RunConfig) if field.type == "bool"}
    for override in command.typed.overrides:
        key = override.key_or_group
        if override.is_delete():
            continue
        globbed = isinstance(override.value(), Glob)
        require(key in known or not globbed, key, override.get_value_string(), _GLOB)
        if key not in known and key not in flags:
            continue
        given = alternatives(override)
        if key in flags:
            for value in given:
                require(str(value).lower() in ("true", "false"), key, value, "true or false")
            continue
        require(bool(given), key, override.get_value_string(), f"{_GLOB}; none matches")
        for choice in given:
            named = isinstance(choice, str) and ".." not in choice.split("/")
            allowed = f"a choice that `fedclust list {key}` shows"
            names = choice if isinstance(choice, list) else []
            listed = [one for one in names if isinstance(one, str)]
            if len(listed) > 1:
                allowed = f"-m {key}={','.join(listed)} runs them all"
            require(named, key, choice, allowed)


def check_tuned(command: Command) -> None:
    """Refuse a sweep of which a part could take no values of `fedclust tune`, before its first job.

    A part is what a value stands for, such as a method: it is refused where no combination with the
    others has a search. A single job without one is told like any that cannot run.
    """
    if not command.many:
        return
    given, own = command.whole.last, command.typed.own
    if command.config.get("tuned") is None and "tuned" not in given:
        return
    decisive = {"tuned", "seeds", *groups(own)}
    options = list[list[str]]()
    for key, one in given.items():
        value = one.value()
        if isinstance(value, IntervalSweep):
            values = [str(value.start)]
        else:
            values = alternatives(one) if one.is_sweep_override() else []
        some = values if key in decisive else values[:1]
        options.append([f"{key}={text}" for text in some] or [str(one.input_line)])
    errors: dict[str, ConfigError] = {}
    untried = {text for some in options for text in some}
    for combination in product(*options):
        if untried.isdisjoint(combination):
            continue
        config = compose(combination, own)
        try:
            apply_tuned(config, choices_of(config.hydra), Typed(combination, own).values)
        except ConfigError as error:
            for text in untried & set(combination):
                errors.setdefault(text, error)
        else:
            untried -= set(combination)
    lacking = [errors[text] for text in errors if text in untried]
    if lacking:
        raise lacking[0]


def check_direction(command: Command) -> None:
    """Refuse a sweeper that would look for the worst value of the objective."""
    if not command.many:
        return
    sweeper: Any = OmegaConf.to_container(command.config.hydra.sweeper, enum_to_str=True)
    direction = sweeper.get("direction")
    metric = schema.objective_of(command.config)
    own, better = schema.headline_of(command.config)
    if metric in METRICS:
        better = METRICS[metric].better
    wanted = _DIRECTIONS.get(better) if metric in METRICS or metric.endswith(own) else None
    if wanted is not None and direction is not None:
        allowed = f"{wanted}, since {metric} is better the {better} it is"
        require(direction == wanted, "hydra.sweeper.direction", direction, allowed)


# in the order in which a mistake is told; those of form and choices come before Hydra composes
CHECKS: tuple[Callable[[Command], None], ...] = (
    check_form,
    check_choices,
    check_hydra,
    check_tuned,
    check_read,
    check_direction,
)


def checked(
    composed: DictConfig,
    chosen: Mapping[str, Any],
    typed: Typed,
    shared: Collection[str],
    warn: Callable[[str, bool], object],
) -> tuple[DictConfig, dict[str, Any]]:
    """What is refused or told of every job, as far as it is known before PyTorch is imported.

    Args:
        composed: the job's config, without the node `hydra`; its own solver yields to what is
            typed.
        chosen: the choices of every group.
        typed: the job's overrides.
        shared: shared keys to which values are typed, see `shared_keys`.
        warn: is told what has no effect, and whether it holds of this method alone.

    Returns:
        The config with tuned values, and the same resolved.

    Raises:
        ConfigError: for what cannot be a job.
    """
    yield_to_typed(composed, shared)
    for key in unread(composed, shared):
        if text := why_unread(key, composed, str(chosen["algorithm"]), typed.own):
            warn(text, False)
    tuned, search, settings = apply_tuned(composed, chosen, typed.values)
    more = {"choices": dict(chosen), "overrides": list(typed.texts), **search}
    resolved = schema.resolve(tuned, more)
    check_scale(chosen, resolved["scale"], typed.own)
    schema.check_keys(resolved)
    schema.check_sampling(resolved, typed.keys)
    if remark := elsewhere(settings, resolved):
        warn(remark, True)
    return tuned, resolved


def choices_of(hydra: Any) -> dict[str, str]:
    """What is chosen of every group of ours, from the node `hydra` of a config."""
    named = {str(group): name for group, name in hydra.runtime.choices.items()}
    for group in WITH_NONE:
        named[group] = None if named.get(group) == NONE else named.get(group)
    others = ("hydra", f"{VIRTUAL}/")
    return {group: name for group, name in named.items() if not group.startswith(others)}


def without_hydra(composed: DictConfig) -> DictConfig:
    """The config of a job, which does not know how it is launched."""
    config: DictConfig = pickle.loads(pickle.dumps(composed))  # copies in a third of the time
    with read_write(config), open_dict(config):
        del config["hydra"]
    return config


def check_report(resolved: Mapping[str, Any]) -> None:
    """Refuse what no report can be made of while nothing has been computed yet.

    Called when the parts are built, for a user's file documents its metrics when it is imported.
    """
    # costs a tenth of a second
    from fedclust import papers
    from fedclust.report.spec import Spec

    if outside := Spec.of(resolved, papers).outside:
        from fedclust.report.outside import read_measured

        read_measured(Path(outside))


def check_scale(chosen: Mapping[str, Any], node: Any, own: Path | None) -> None:
    """Refuse a scale that the experiment does not define; Hydra would run it at full size."""
    experiment, scale = chosen.get("experiment"), chosen["scale"]
    named = {"name": scale, "folder": "" if scale == "paper" else f"-{scale}"}
    allowed = "what scale=… sets; `fedclust list scale` shows the choices"
    require(isinstance(node, Mapping), "scale", node, allowed)
    for key in {*named, *node}:
        value = node.get(key)
        require(key in named and value == named[key], f"scale.{key}", value, allowed)
    if scale == "paper":
        return
    require(
        experiment is not None, "scale", scale, "only an experiment=… has scales other than paper"
    )
    files = choices("experiment", own)
    there = sorted(scales_of(files[str(experiment)]))
    if scale not in there:
        raise ConfigError(
            f"scale={scale} is not allowed: {experiment} has "
            f"{'the scales' if there else 'one scale,'} {', '.join(['paper', *there])}"
        )
