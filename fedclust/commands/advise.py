"""`fedclust advise`: from a user's own clients to what they should train."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from fedclust.config import schema
from fedclust.config.tree import roots
from fedclust.helpers.errors import ConfigError, pasted, require
from fedclust.helpers.prose import say
from fedclust.launch.checks import check_choices, checked, choices_of, prepared, without_hydra
from fedclust.launch.compose import Command, compose
from fedclust.launch.failures import attempt, mistakes_told
from fedclust.launch.guard import hydra_of_its_own, importable
from fedclust.launch.typed import Typed, parsed
from fedclust.launch.unread import shared_keys
from fedclust.runtime.progress import Aside, Once, Said, rough
from fedclust.tuning.one_search import Search
from fedclust.tuning.space import Dimension, space_of
from fedclust.tuning.tuned import with_values

HELP = """usage: fedclust advise [KEY=VALUE …]

  dataset=csv dataset.path=… dataset.label=… dataset.client=…
                          your data, as for `fedclust run`
  seeds=10                repetitions: each splits the rows of every client anew
  algorithm=…             the methods: default local,fedavg,finetune,ifca,flexcfl,lcfl
  num_clusters=2,3,4      how many groups are tried; a sweep of another key is searched too
  settings=6              settings of each method that validation rows choose among
  metric=…                what is measured on test rows: accuracy, f1_macro, auroc_over_clients, …
  margin=0.01             the least difference that matters
  permutations=39         federations with exchanged rows, for groups that lead; 0: no claim of any
  quick=true              a first look: 5 repetitions, 4 settings, 19 permutations
  KEY=VALUE               as for `fedclust run`, such as model=mlp, task=regression, rounds=40

The verdict is printed and stands in outputs/NAME/advice/index.html; the same command continues an
interrupted one. docs/how-to/decide.md explains what it says, docs/adviser.md how often it errs."""
_SHARE = 0.2  # of the rows that are no test rows, for validation
_GROUPS_TRIED = "num_clusters=2,3,4"
_OWN: dict[str, tuple[Any, Any]] = {  # keys of this command: default, and for a first look
    "settings": (6, 4),
    "permutations": (39, 19),
    "metric": (None, None),
    "margin": (None, None),
    "quick": (False, True),
}
_REPETITIONS = 5  # of a first look
_MOST_SETTINGS, _MOST_PERMUTATIONS = 1000, 10_000


def command(arguments: Sequence[str]) -> None:
    """Compare what the clients could train, and print and write a verdict."""
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return
    typed = Typed.of_keys(arguments, "advise")
    console = Console(stderr=True)
    with mistakes_told(console, typed.own), hydra_of_its_own(typed), importable(typed.own):
        _advise(typed, console)


def _advise(given: Typed, console: Console) -> None:
    own, typed = _own_keys(given)
    lines = Said()

    def warn(line: str, _: bool) -> None:
        if lines.is_new(line):
            say(console, line, style="yellow")

    searches = searches_of(typed, warn)
    seeds = searches[0][1].resolved()["seeds"]
    require(len(seeds) > 1, "seeds", len(seeds), "two repetitions or more, ten as a rule")
    from fedclust.advise.advise import Asked, advise  # and with it PyTorch
    from fedclust.advise.page import write_page
    from fedclust.advise.verdict import CHOICES
    from fedclust.advise.words import sentences

    asked = Asked(
        budget=own["settings"],
        permutations=own["permutations"],
        margin=own["margin"],
        metric=own["metric"],
        quick=own["quick"],
    )
    folder = searches[0][1].folder
    told = Aside("advise", console, Once("advise", Said().is_new))
    progress = searches[0][1].resolved()["progress"]
    shown = console.is_terminal and progress
    with console.status("advise: loading the data", refresh_per_second=4) as status:
        began, done = time.monotonic(), 0

        def begun(what: str, least: int) -> None:
            nonlocal done
            left = (time.monotonic() - began) / max(1, done) * max(0, least - done)
            end = f", about {rough(left)} left" if done else ""
            line = f"advise: job {done + 1} of about {max(least, done + 1)}: {what}{end}"
            if shown:
                status.update(line)
            elif progress and done % max(1, least // 10) == 0:
                say(console, line)
            done += 1

        if not shown:
            status.stop()
        advice = attempt(lambda: advise(searches, folder, asked, begun, told), folder)
    page = attempt(lambda: write_page(advice, folder / "advice"), folder)
    out = Console()
    for line in sentences(advice):
        say(out, line)
    say(out, f"{page}")
    if advice.predicts:
        made = advice.verdict
        which = CHOICES[made.choice] + ", the simplest of what is left" * (made.kind == "open")
        say(console, f"`fedclust predict {pasted(str(folder))} FILE` predicts new rows: {which}")


def _own_keys(given: Typed) -> tuple[dict[str, Any], Typed]:
    """The keys of this command, and all else that is typed."""
    latest = given.latest()
    node: dict[str, Any] = {
        one.key_or_group: one.value() for one in latest.overrides if one.key_or_group in _OWN
    }
    quick = node.get("quick", False)
    require(isinstance(quick, bool), "quick", quick, "true or false")
    own = {key: node.get(key, usual[quick]) for key, usual in _OWN.items()}
    for key, least, most in (
        ("settings", 2, _MOST_SETTINGS),
        ("permutations", 0, _MOST_PERMUTATIONS),
    ):
        whole = isinstance(own[key], int) and not isinstance(own[key], bool)
        fits = whole and least <= own[key] <= most
        require(fits, key, own[key], f"a whole number in [{least}, {most}]")
    margin, allowed = own["margin"], "a number above 0, or null"
    number = isinstance(margin, int | float) and not isinstance(margin, bool)
    require(margin is None or (number and 0 < margin < float("inf")), "margin", margin, allowed)
    named = own["metric"] is None or isinstance(own["metric"], str)
    require(named, "metric", own["metric"], "the name of a score, or null")
    texts = [text for text in latest.texts if text.partition("=")[0] not in _OWN]
    there = {text.partition("=")[0] for text in texts}
    if quick and "seeds" not in there:
        texts.append(f"seeds={_REPETITIONS}")
    if "experiment" not in there:
        texts.insert(0, "experiment=advise")
    return own, Typed(tuple(texts), given.own, many=False)


def searches_of(typed: Typed, warn: Callable[[str, bool], object]) -> list[tuple[str, Search]]:
    """The config and the space of every method, and which choice each is; none has run by then.

    Raises:
        ConfigError: for what cannot be compared.
    """
    from fedclust.advise.arms import check_methods, choice_of

    check_choices(Command(typed))  # before anything is composed
    swept = [one for one in typed.overrides if one.is_sweep_override()]
    fixed = [one for one in typed.overrides if not one.is_sweep_override()]
    plain = tuple(str(one.input_line) for one in fixed if one.key_or_group != "algorithm")
    first = compose(plain, typed.own)
    params = first.hydra.sweeper.get("params") or {}
    named = typed.choices.get("algorithm") or str(params.get("algorithm", "")).split(",")
    kinds = {str(method): choice_of(str(method), roots(typed.own)) for method in named}
    check_methods(kinds)
    prepared(Typed(plain, typed.own, many=False), first, list(kinds))
    asked = [one for one in swept if one.key_or_group != "algorithm"]
    if "num_clusters" not in typed.keys:
        asked += parsed([_GROUPS_TRIED], typed.own)
    found = [
        (kind, _search((*plain, f"algorithm={method}"), typed.own, fixed, asked, warn))
        for method, kind in kinds.items()
    ]
    read = {key for _, search in found for key in search.space}
    for one in asked:
        allowed = f"a key that one of {', '.join(kinds)} reads"
        require(one.key_or_group in read, one.key_or_group, one.get_value_string(), allowed)
    return found


def _is_searched(key: str) -> bool:
    """Whether a few settings can say something of a key: of a solver its learning rate alone."""
    return key.partition(".")[0] not in ("solver", "server") or key == "solver.lr"


def _search(
    texts: tuple[str, ...],
    own: Path | None,
    fixed: Sequence[Any],
    asked: Sequence[Any],
    warn: Callable[[str, bool], object],
) -> Search:
    """A method's config, and what is searched of it: of what is asked that which it reads."""
    typed = Typed(texts, own, many=False)
    composed = compose(texts, own)
    choices = choices_of(composed.hydra)
    shared = {*shared_keys(typed)} - {"num_clusters"}  # of groups alone, as the help says
    config, resolved = checked(without_hydra(composed), choices, typed, shared, warn)
    changed = {
        "seeds": schema.seed_list(resolved["seeds"]),
        "validation": resolved["validation"] or _SHARE,
        "eval_every": resolved["rounds"],
        "score_every": None,
        "objective": None,
    }
    config, method = with_values(config, changed), choices["algorithm"]

    def space(some: Sequence[Any]) -> dict[str, Dimension]:
        named = {one.key_or_group for one in some}
        all_ = space_of(config, method, [*fixed, *some], roots(own), choices)
        return {key: one for key, one in all_.items() if key in named or _is_searched(key)}

    read = []
    for one in asked:
        with suppress(ConfigError):
            space([one])
            read.append(one)
    return Search(
        config=config,
        choices=choices,
        overrides=list(texts),
        space=space(read),
        metric=f"validation_{schema.headline_of(resolved)[0]}",
        rounds=resolved["rounds"],
        folder=Path("outputs", resolved["name"]),
        own=own,
    )
