"""What a user may have meant ("did you mean …?"), where Hydra does not know a key or a choice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from fedclust.config.schema import SCHEMA, allowed, missing
from fedclust.config.tree import choices_with, groups
from fedclust.helpers.errors import closest, did_you_mean, pasted, some_of, typed
from fedclust.helpers.extras import install
from fedclust.launch.compose import compose_or_none, names_of, node_at
from fedclust.launch.typed import Typed, parsed

# which extra brings a choice of Hydra that is not there
_EXTRAS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}
_EXTRA_OF = {f"hydra/launcher/{name}": extra for name, extra in (*_EXTRAS.items(), ("ray", "ray"))}
_EXTRA_OF["hydra/sweeper/optuna"] = "optuna"
HYDRAS = (HydraException, OmegaConfBaseException)
_NO_KEY = re.compile(r"Could not override '([^']+)'")
_NOT_INSIDE = re.compile(r"Key '([^']+)' is not in struct")
_OWN = re.compile(r"ConfigError raised while resolving interpolation: (.*?)(?: full_key: .*)?$")
_NO_REFERENCE = re.compile(r"Interpolation key '([^']+)' not found(?: full_key: (\S+))?")
_SEVERAL = re.compile(r"^(?:Ambiguous value for argument|Sweep parameters) '([^=]+)=(.*?)' (1\.)?")
# what other programs and papers call a key, in small letters, by its last part here
_ALSO = {
    **dict.fromkeys(("learning_rate", "local_lr", "client_lr", "eta"), "lr"),
    **dict.fromkeys(("batch", "bs", "batchsize", "local_bs", "local_batch_size"), "batch_size"),
    **dict.fromkeys(("local_epochs", "local_ep", "epoch", "e"), "epochs"),
    **dict.fromkeys(("local_steps", "local_iterations"), "steps"),
    **dict.fromkeys(("wd", "l2"), "weight_decay"),
    "mu": "proximal",
    **dict.fromkeys(("n_clients", "num_users", "clients", "n"), "num_clients"),
    **dict.fromkeys(
        ("num_rounds", "global_rounds", "communication_rounds", "comm_round"), "rounds"
    ),
    **dict.fromkeys(("num_global_iters", "t"), "rounds"),
    **dict.fromkeys(("k", "n_clusters", "clusters"), "num_clusters"),
    **dict.fromkeys(("client_fraction", "frac", "fraction_fit"), "participation"),
    **dict.fromkeys(("join_ratio", "c"), "participation"),
    **dict.fromkeys(("seed", "random_seed"), "seeds"),
    **dict.fromkeys(("gpu", "gpus", "cuda"), "device"),
    **dict.fromkeys(("optimizer", "optimiser"), "solver"),
    **dict.fromkeys(("method", "strategy"), "algorithm"),
    **dict.fromkeys(("data", "data_name"), "dataset"),
}
_STRAY, _BRACKETS = " ,;'\"", "[](){}"  # signs that a list leaves at the ends of one of its values
_FEW = 8  # choices of a group that a line names
# what Hydra's grammar says of text that stands in no quotes
_UNREAD = ("token recognition error", "no viable alternative", "mismatched input", "extraneous inp")


def explained(error: Exception, arguments: Sequence[str], sweep: str = "`fedclust run -m`") -> str:
    """One line from Hydra's several, with what may have been meant."""
    line, given = _in_one_line(error), Typed.of(arguments)
    if own := _OWN.search(line):  # what `${oc.env:…}` and the like have said themselves
        return own[1]
    if pair := _NO_REFERENCE.search(line):
        name, part = pair[1], (pair[2] or "hydra").partition(".")[0]
        who = "a value" if part == "hydra" else f"a value of {part}"  # or typed
        top = name.partition(".")[0]
        meant = "" if top in SCHEMA else did_you_mean(top, SCHEMA)
        return f"{who} refers to ${{{name}}}, and there is no such key" + (meant and f"; {meant}")
    if deleted := missing(line):  # which others refer to
        return deleted
    for explain in (_no_choice, _wrong_kind, _unquoted):
        if words := explain(line, given):
            return words
    if several := _SEVERAL.search(line):
        key, values, in_row = several.groups()
        ways = pasted(f"{key}=[{values}]"), typed(key, values)
        is_choice = key in groups(given.own)  # which takes neither
        one = f"; {ways[0]} is one list, and {ways[1]} one text" if in_row and not is_choice else ""
        return f"{key}={values} is not allowed: {sweep} runs a job for every value{one}"
    if key := _NO_KEY.search(line):
        name = key[1]
        inside = _NOT_INSIDE.search(line)
        if inside and name.rpartition(".")[2] != inside[1]:  # of a mapping that was typed
            name += f".{inside[1]}"
        return f"there is no key {name}; {_meant_key(name, key[1], given)}"
    return line


def _in_one_line(error: Exception) -> str:
    """A message of Hydra without its advice; the innermost cause says most about a wrong value."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    head, detail = (" ".join(str(one).split()) for one in (error, cause))
    for advice in (
        " Config search path:",
        " See https",
        " Set the environment",
        " To append to your",
    ):
        head = head.partition(advice)[0]
    head = head.rstrip(".")
    return head if detail in head or cause is error else f"{head}: {detail.split(' full_key:')[0]}"


def _wrong_kind(line: str, given: Typed) -> str:
    """What to say of a value whose type a top-level key does not have."""
    head = "Error merging override "
    text = next((one for one in given.texts if line.startswith(f"{head}{one}:")), "")
    key, _, value = text.lstrip("+").partition("=")
    words = "true or false" if "valid bool" in line else allowed(key)
    if not words and "could not be converted to" in line:
        words = "a number" if line.endswith("Float") else "a whole number"
    if not words and "Cannot convert 'list'" in line:
        words = "one value, not a list"
    if not words and " to Dict[" in line:
        words = f"keys with values, as in +{key}.name=value"
    return f"{key}={value or repr(value)} is not allowed: {words}" if text and words else ""


def _unquoted(line: str, given: Typed) -> str:
    """What to say of a value that Hydra's grammar cannot read as it is."""
    if not any(one in line for one in _UNREAD):
        return ""
    for text in given.texts:
        key, equals, value = text.partition("=")
        if equals and not _is_read(text):
            plain = value.strip("'\"")  # quotes within are part of it
            bare = value.strip(_STRAY + (_BRACKETS if key in groups(given.own) else ""))
            whole = bool(bare) and "," not in bare and _is_read(f"{key}={bare}")
            remedy = f"write {pasted(f'{key}={bare}') if whole else typed(key, plain)}"
            if not _is_read(f"{key}=1"):
                remedy = "a key has letters from a to z, digits, -, _ and dots"
            return f"{text} cannot be read: {remedy}"
    return ""


def _is_read(text: str) -> bool:
    try:
        parsed([text])
    except HydraException:
        return False
    return True


def _no_choice(line: str, given: Typed) -> str:
    """What to say of a choice that a group does not have; "" where the line is of another thing."""
    choice = re.search(r"Could not find '([^']+)'", line)
    if choice is None:
        return ""
    parts = choice[1].split("/")
    group = "/".join(parts[: 2 if parts[0] == "hydra" else 1])
    name = choice[1].removeprefix(f"{group}/")
    if choice[1] in _EXTRA_OF:
        extra = _EXTRA_OF[choice[1]]
        return f"there is no {choice[1]} here: {install(extra)} brings it"
    known = list(names_of(group, given.own))
    inside = [one for one in known if one.startswith(f"{name}/")]
    if inside:
        return f"there is no {choice[1]}; there are {', '.join(inside)}"
    begin = [one for one in known if name and one.startswith(name)]
    several = f"did you mean {' or '.join(begin)}?" if 1 < len(begin) < 4 else ""
    meant = several or did_you_mean(name, known)
    rest = (
        f"it has {', '.join(known)}"
        if parts[0] == "hydra" or len(known) <= _FEW
        else f"`fedclust list {group}` shows all"
    )
    return f"there is no {choice[1]}; {meant and meant + ' '}{rest}"


def _keys_but(key: str, given: Typed) -> list[str]:
    """The keys of a config that is composed without one override."""
    others = [one for one in given.texts if "=" in one and key not in one.partition("=")[0]]
    config = compose_or_none(others, given.own)
    return [] if config is None else list(_all_keys(node_at(config, "")))


def _meant_key(key: str, override: str, given: Typed) -> str:
    """Which key may have been meant in the value of an override."""
    there = _keys_but(override, given)
    if key in there:  # of a sweep the first choices are composed
        return _without_key(key, given)
    return _takers(key, there, given.own) or _meant_among(there, key)


def _without_key(key: str, given: Typed) -> str:
    """Which choice of a sweep lacks a key that its first ones have."""
    for text in given.texts:
        group, _, options = text.partition("=")
        for option in options.split(",")[1:] if group in groups(given.own) else ():
            others = (one for one in given.texts if one != text)
            there = _keys_but(key, Typed((*others, f"{group}={option}"), given.own, many=False))
            if there and key not in there:
                return f"{group}={option} has none: {_meant_among(there, key)}"
    return "not all choices of the sweep have it"


def _takers(key: str, there: Sequence[str], own: Path | None) -> str:
    """Which choices of a group have an option that the one chosen lacks, "" where none has."""
    group, _, option = key.partition(".")
    inside = [one for one in there if one.startswith(f"{group}.") and one.endswith(f".{option}")]
    if not option.isidentifier() or inside or group not in groups(own):
        return ""
    found = choices_with(group, re.compile(rf"^{option}:", re.MULTILINE), own)
    verb = "takes" if len(found) == 1 else "take"
    return f"{some_of([f'{group}={one}' for one in found], 4)} {verb} it" if found else ""


def _meant_among(there: Sequence[str], key: str) -> str:
    """Which key of the config's may have been meant."""
    known = {*groups(), *SCHEMA}
    top, *below = key.split(".")
    # many parts of an algorithm are top-level keys of their own: algorithm.solver.lr is solver.lr
    tops = {one for one in there if "." not in one} or known
    own = [".".join(below[i:]) for i in range(len(below)) if below[i] in tops]
    if own and own[0] in {*known, *there}:
        return f"{own[0]} is a key by itself: did you mean {own[0]}=…?"
    if own:
        return _meant_among(there, own[0])
    if key == "tags" or (below and top == "tags"):  # the only one that a user may name freely
        return f"did you mean +{key}=…?"
    if not below and top in groups() and top not in tops:  # a group that only parts choose from
        parents = {one.rpartition(".")[0] for one in there}  # solver.warmup is a number, no part
        used = [one for one in there if one.endswith(f".{top}") and one in parents]
        return f"did you mean {top}@{used[0]}=…?" if used else "nothing chosen here uses one"
    last = key.rpartition(".")[2]
    parent = key.removesuffix(last)
    if also := _ALSO.get(last.lower()):
        named = [one for one in there if one.rpartition(".")[2] == also and one[:6] != "hydra."]
        if below:
            named = [one for one in named if one.startswith(f"{top}.")]
        named = [one for one in (f"{parent}{also}",) if one in named] or named[:3]
        if named:
            return f"did you mean {' or '.join(named)}?"
    if last == "alpha" and not any(one.endswith(".alpha") for one in there):
        return "did you mean partition=dirichlet partition.alpha=…?"
    beside = [one for one in there if one.startswith(parent) and "." not in one[len(parent) :]]
    elsewhere = [one for one in there if one.rpartition(".")[2] == last and one[:6] != "hydra."]
    if not below and not elsewhere and (meant := did_you_mean(top, known)):
        return meant
    deeper = [one for one in elsewhere if below and one.startswith(f"{top}.")]
    if len(deeper) == 1:  # partition.base.num_clients for partition.num_clients
        return f"did you mean {deeper[0]}?"
    close = closest(last, [one[len(parent) :] for one in beside])
    if below and close:
        return f"did you mean {parent}{close}?"
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere[:3])}?"
    shown = f"hydra.{below[0]}" if top == "hydra" and below else ""
    if beside and below and not shown:
        return f"{parent[:-1]} has the keys {', '.join(one[len(parent) :] for one in beside)}"
    part = "hydra" if top == "hydra" else "job"
    return f"`fedclust run --cfg {part}` shows the keys there are"


def _all_keys(node: Any, above: str = "") -> Iterator[str]:
    """The dotted keys below a node, but for those that begin with _."""
    for name, value in node.items() if isinstance(node, Mapping) else ():
        if not str(name).startswith("_"):
            yield f"{above}{name}"
            yield from _all_keys(value, f"{above}{name}.")
