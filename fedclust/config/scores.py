"""The scores that a config asks for, made and checked; and those of its task, made known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedclust.config.objects import Objects
from fedclust.config.schema import objective_of
from fedclust.config.values import Parts
from fedclust.core.task import Score, Task
from fedclust.helpers.errors import ConfigError, did_you_mean, require
from fedclust.metrics import FORMS, METRICS, OURS, changed_names, document, meaning
from fedclust.metrics.judged import meanings
from fedclust.metrics.scores import MEASURES, Measure

_WORDS = {"classes": "classes", "flags": "several labels", "numbers": "numbers"}
# columns of clients.parquet
_TAKEN = ("seed", "round", "client", "name", "group", "label", "train_count", "test_count")


def measures(parts: Parts) -> list[Measure]:
    """The scores that are asked for, with an objective's, made known to recorder and report.

    Raises:
        ConfigError: for a score or objective that is not there, not suited, or not evaluated.
    """
    config, task = parts.config, parts.made["task"]
    _make_known_of(task)
    every, tested = config.get("score_every"), config["eval_every"]
    allowed = f"a multiple of eval_every={tested}, whose rounds alone are tested"
    require(every is None or every % tested == 0, "score_every", every, allowed)
    asked = [_made(entry, parts.objects) for entry in config.get("scores") or ()]
    found, names = list(asked), [one.about.name for one in asked]
    for name in names:
        require(names.count(name) == 1, "scores", name, "every score once")
    objective = str(config.get("objective") or "").removeprefix("validation_")
    for name, own in MEASURES.items():
        if name not in names and any(part.name == objective for part in meanings(own)):
            found.append(own)
    allowed = "null where scores=[…] asks for none"
    require(every is None or bool(found), "score_every", every, allowed)
    _check_suits(found, asked, task)
    make_known(found)
    meaning(objective_of(config), "objective")  # now that a method's own metrics are known
    return found


def make_known(found: Iterable[Measure]) -> None:
    """Let the numbers of scores be recorded and read, unless the task records them."""
    for one in found:
        for about in meanings(one):
            known = METRICS.get(about.name)
            if known is None or (known.unit, known.better) != (about.unit, about.better):
                document(about.name, about.text, about.unit, about.better, about.title)


def _made(entry: Any, objects: Objects) -> Measure:
    """The score that an entry of the list describes."""
    if isinstance(entry, Mapping):
        made: Measure = objects.make(entry, "scores")
        about, targets = getattr(made, "about", None), getattr(made, "targets", None)
        if not isinstance(about, Score) or not isinstance(targets, tuple):
            raise ConfigError(
                f"scores: {type(made).__qualname__} needs about, a fedclust.core.task.Score, and "
                'targets, a tuple such as ("classes",)'
            )
        name, allowed = about.name, "about.name: a word that no other number of a job has"
        free = name.isidentifier() and name not in (*OURS, *MEASURES, *_TAKEN)
        require(free, f"scores: {type(made).__qualname__}", name, allowed)
        return made
    meant = did_you_mean(str(entry), MEASURES)
    allowed = f"one of {', '.join(MEASURES)}, or a mapping with _target_"
    require(str(entry) in MEASURES, "scores", entry, meant or allowed)
    return MEASURES[str(entry)]


def _check_suits(found: Sequence[Measure], asked: Sequence[Measure], task: Task) -> None:
    """Refuse a score of another task."""
    suits = [name for name, one in MEASURES.items() if task.targets in one.targets]
    for one in found:
        require(
            task.targets in one.targets,
            "scores" if one in asked else "objective",
            one.about.name,
            f"a score of {_WORDS[task.targets]}, which the task predicts: {', '.join(suits)}",
        )


def _make_known_of(task: Task) -> None:
    """Make the numbers of a task known."""
    for score in (task.score, *task.beside):
        _document(score, score.name, "")
        for form, which in FORMS.items() if score is task.score else ():
            _document(score, f"{score.name}{form}", f", {which}")
        text = score.text.replace(" test ", " validation ")
        held_out = replace(score, text=text, title=f"{score.title}, on validation examples")
        _document(held_out, f"validation_{score.name}", "")
    changed = "before their data change", "when their data have changed", "since their data changed"
    for name, when in zip(changed_names(task.score.name), changed, strict=True):
        _document(task.score, name, f", of the clients that change, {when}")


def _document(score: Score, name: str, more: str) -> None:
    """Make a form of a score known; those of classification stand in the list."""
    if name not in OURS:
        document(name, score.text + more, score.unit, score.better, score.title + more)
