"""What is refused of a composed config before its parts are made; see also
`fedclust.launch.guard`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, IntervalSweep
from omegaconf import DictConfig

from fedclust.config import schema
from fedclust.config.schema import RunConfig
from fedclust.config.tree import choices, groups
from fedclust.helpers.errors import ConfigError, require
from fedclust.launch.compose import compose
from fedclust.launch.scales import parsed, scales_of
from fedclust.launch.unread import unread, why_unread, yield_to_typed
from fedclust.tuning.tuned import apply_tuned, elsewhere

_GLOB = "glob(…) for the choices of a group, such as algorithm=glob(flexcfl*)"


def check_form(overrides: Sequence[str], own: Path | None) -> None:
    """Refuse what is no KEY=VALUE, for which Hydra has no words either.

    Raises:
        ConfigError: with the choice that may have been meant.
    """
    for text in overrides:
        key, equals, _ = text.partition("=")
        if key and (equals or key.startswith("~")):
            continue
        meant = [f"{group}={text}" for group in groups(own) if text in choices(group, own)]
        allowed = f"did you mean {' or '.join(meant)}?" if meant else "KEY=VALUE, as in rounds=20"
        raise ConfigError(f"{text!r} is not allowed: {allowed}")


def check_choices(overrides: Sequence[str], own: Path | None) -> None:
    """Refuse what is no name of a choice, where a group is given, and what is neither true nor
    false, of which OmegaConf makes one of them.

    Raises:
        ConfigError: naming the group or the key.
    """
    known = groups(own)
    flags = {field.name for field in fields(RunConfig) if field.type == "bool"}
    for override in parsed(overrides, own):
        key = override.key_or_group
        if override.is_delete():
            continue
        globbed = isinstance(override.value(), Glob)
        require(key in known or not globbed, key, override.get_value_string(), _GLOB)
        if key not in known and key not in flags:
            continue
        sweep_over = override.is_sweep_override()
        given = list(override.sweep_string_iterator()) if sweep_over else [override.value()]
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


def check_tuned(
    composed: DictConfig,
    overrides: Sequence[str],
    own: Path | None,
) -> None:
    """Refuse a sweep of which a part could take no values of `fedclust tune`, before its first job.

    A part is what a value stands for, such as a method: it is refused where no combination with the
    others has a search. A single job without one is told like any that cannot run.

    Args:
        composed: the config of the first job, with the node `hydra`.
        overrides: as typed.
        own: the folder given with --config-dir.

    Raises:
        ConfigError: see `apply_tuned`.
    """
    params = composed.hydra.sweeper.get("params") or {}
    texts = (*(f"{key}={value}" for key, value in params.items()), *overrides)
    given = {one.get_key_element(): one for one in parsed(texts, own)}
    if composed.get("tuned") is None and "tuned" not in given:
        return
    decisive = {"tuned", "seeds", *groups(own)}
    options = list[list[str]]()
    for key, one in given.items():
        value = one.value()
        if isinstance(value, IntervalSweep):
            values = [str(value.start)]
        else:
            values = list(one.sweep_string_iterator()) if one.is_sweep_override() else []
        some = values if key in decisive else values[:1]
        options.append([f"{key}={text}" for text in some] or [str(one.input_line)])
    errors: dict[str, ConfigError] = {}
    untried = {text for some in options for text in some}
    for combination in product(*options):
        if untried.isdisjoint(combination):
            continue
        config = compose(combination, own)
        try:
            apply_tuned(config, config.hydra.runtime.choices, combination)
        except ConfigError as error:
            for text in untried & set(combination):
                errors.setdefault(text, error)
        else:
            untried -= set(combination)
    lacking = [errors[text] for text in errors if text in untried]
    if lacking:
        raise lacking[0]


def checked(
    composed: DictConfig,
    choices: Mapping[str, Any],
    overrides: Sequence[str],
    typed: Collection[str],
    own: Path | None,
    warn: Callable[[str, bool], object],
) -> tuple[DictConfig, dict[str, Any]]:
    """What is refused or told of every job, whoever composed it: a run, a sweep, a search, Python.

    All that can be known before PyTorch is imported; `fedclust.launch.unread.without_effect` is
    for afterwards.

    Args:
        composed: the job's config, without the node `hydra`; its own solver yields to what is
            typed.
        choices: of every group.
        overrides: of the job.
        typed: shared keys to which values are typed, see `typed_keys`.
        own: the folder given with --config-dir.
        warn: is told what has no effect, and whether it holds of this method alone.

    Returns:
        The config with tuned values, and the same resolved.

    Raises:
        ConfigError: for what cannot be a job.
    """
    yield_to_typed(composed, typed)
    for key in unread(composed, typed):
        if text := why_unread(key, composed, str(choices["algorithm"]), own):
            warn(text, False)
    tuned, search, settings = apply_tuned(composed, choices, overrides)
    more = {"choices": dict(choices), "overrides": list(overrides), **search}
    resolved = schema.resolve(tuned, more)
    check_scale(choices, resolved["scale"], own)
    schema.check_keys(resolved)
    schema.check_sampling(resolved, overrides)
    if remark := elsewhere(settings, resolved):
        warn(remark, True)
    return tuned, resolved


def check_report(resolved: Mapping[str, Any]) -> None:
    """Refuse what no report can be made of while nothing has been computed yet.

    Called when the parts are built, for a user's file documents its metrics when it is imported.

    Raises:
        ConfigError: naming the key below `report`.
    """
    # costs a tenth of a second
    from fedclust import papers
    from fedclust.report.spec import Spec

    if outside := Spec.of(resolved, papers).outside:
        from fedclust.report.outside import read_measured

        read_measured(Path(outside))


def check_scale(chosen: Mapping[str, Any], node: Any, own: Path | None) -> None:
    """Refuse a scale that the experiment does not define; Hydra would quietly run it at full
    size.

    A report judges by the scale's name, so its keys are those of the choice.
    """
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
