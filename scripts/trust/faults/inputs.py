"""Values that nobody means: odd ones of every key of conf/, and mistakes written by hand."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from faults.case import Case, called
from fedclust.config.parts import PARTS
from fedclust.config.tree import CONF
from fedclust.launch.compose import register

ODD = ("null", "-1", "0", "1e300", ".inf", ".nan", "1000000000000000000000000000000", "abc", "[]")
HERE = ("digits", "synthetic", "watch")  # data sets that need no file
QUICK = ("progress=false", "rounds=1", "partition.num_clients=8", "threads=1")
BY_HAND = Path(__file__).with_name("mistakes.txt")
METHOD = """
from dataclasses import dataclass
import torch
from fedclust.core.types import Cost, Served
from fedclust.core.verbs import Method
{before}
@dataclass(frozen=True, kw_only=True)
class Mine(Method):
    @dataclass(frozen=True, kw_only=True)
    class State:
        model: torch.Tensor
    def init(self, clients, rnd):
        model = clients.init(rnd.stream("init"), 1)
        {init}
    def round(self, state, clients, rnd):
        {round}
    def serve(self, state, clients, rnd):
        {serve}
"""
# what a method of one's own does in place of the right thing
OWN: Mapping[str, Mapping[str, str]] = {
    "state of a list": {"init": "return self.State(model=[model]), Cost()"},
    "no cost": {"init": "return self.State(model=model)"},
    "number nobody knows": {"round": "return state, Cost(notes={'surprise': 1.0})"},
    "no memory": {"round": "torch.empty(1 << 50); return state, Cost()"},
    "labels of a float": {
        "serve": "return Served(models=state.model, label=torch.zeros(len(rnd.present)))"
    },
    "raises": {"round": "return 1 / 0"},
    "raises when imported": {"before": "raise RuntimeError('no')"},
    "does not parse": {"before": "def ("},
    "imports what is not there": {"before": "import nothing_of_that_name"},
}
DOES = {
    "before": "",
    "init": "return self.State(model=model), Cost()",
    "round": "return state, Cost()",
    "serve": "return Served(models=state.model, label=torch.zeros_like(rnd.fed.group))",
}
TRACED = ("raises",)  # a mistake of the code itself is shown with its line
USERS_YAML = {
    "empty": "",
    "a list": "- 1\n",
    "no target": "lr: 1\n",
    "a number": "3\n",
    "half a mapping": "a: {b\n",
    "target is a list": "_target_: [a]\n",
    "target of Python": "_target_: os.system\n",
    "target that is merely imported": "_target_: fedclust.algorithms.fedavg.Tensor\n",
    "bytes": "\x00\x01",
    "itself": "defaults: [user]\n",
}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}


def leaves(node: Any, path: str = "") -> Iterator[str]:
    """The keys of all plain values below a node."""
    for key, value in node.items() if isinstance(node, Mapping) else ():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from leaves(value, here)
        elif key not in ("_target_", "defaults"):
            yield here


def keys() -> list[tuple[str, str]]:
    """Every key of conf/, with the choice that has it; "" for the default choices."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        found = {("", key) for key in leaves(OmegaConf.to_container(compose("config")))}
    for group in sorted(PARTS):
        for file in sorted((CONF / group).glob("*.yaml")):
            if group != "dataset" or file.stem in HERE:
                node = OmegaConf.to_container(OmegaConf.load(file))
                found |= {(f"{group}={file.stem}", f"{group}.{key}") for key in leaves(node)}
    return sorted(found)


def odd_values(chosen: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Choice, key and value: all odd values of a key, dealt out over the choices that have it.

    A choice gets three of them at least: 47 methods have `algorithm.num_clusters`, which is one
    field of one class, and each of nine values is tried with 15 of them.
    """
    of = Counter(key for _, key in chosen)
    seen: Counter[str] = Counter()
    for choice, key in chosen:
        apart = min(of[key], len(ODD) // 3)
        for value in ODD[seen[key] % apart :: apart]:
            yield choice, key, value
        seen[key] += 1


def generated(arguments: Sequence[str], folder: Path) -> tuple[str, str]:
    """Give an odd value: it is refused in one line that leaves nothing, or the job runs."""
    ended = called(["run", *arguments], folder)
    left = sorted(path.name for path in folder.iterdir())
    if ended.line:
        return ("crashed" if left else "refused"), f"{ended.line} {left or ''}"
    if ended.status in (0, 1) and "Traceback" not in ended.err:
        return "survived", "accepted"
    return "crashed", ended.end


def refused(
    arguments: Sequence[str], files: Mapping[str, str], env: Mapping[str, str], folder: Path
) -> tuple[str, str]:
    """Make a mistake that has to be refused."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
    ended = called(["run", *arguments], folder, env=env)
    left = {path for path in folder.rglob("*") if "__pycache__" not in path.parts} - before
    if ended.line:
        return ("crashed" if left else "refused"), f"{ended.line} {sorted(left) or ''}"
    return ("wrong" if ended.status == 0 else "crashed"), ended.end


def traced(files: Mapping[str, str], folder: Path) -> tuple[str, str]:
    """Run a method that fails by itself: its own line is told first."""
    end, said = refused([*QUICK, "--config-dir", "mine", "algorithm=user"], files, {}, folder)
    told = "fedclust: " in said and "user_method.py:" in said and said.startswith("1: ")
    return ("refused" if told else end), said


def mistakes() -> Iterator[Case]:
    """Those written by hand."""
    for line in BY_HAND.read_text().splitlines():
        if arguments := shlex.split(line, comments=True):
            work = partial(refused, [*QUICK, *arguments], {}, {})
            yield Case("mistake", " ".join(arguments), work)
    for dropped in TORCHRUN:
        half = {name: value for name, value in TORCHRUN.items() if name != dropped}
        yield Case("mistake", f"no {dropped}", partial(refused, QUICK, {}, half))
    for group in sorted(PARTS):
        for what, text in USERS_YAML.items():
            files = {f"mine/{group}/user.yaml": text}
            given = [*QUICK, "--config-dir", "mine", f"{group}=user"]
            yield Case("mistake", f"{group} of {what}", partial(refused, given, files, {}))
    for what, does in OWN.items():
        code = METHOD.format(**{**DOES, **does})
        files = {
            "mine/algorithm/user.yaml": "_target_: user_method.Mine\n",
            "mine/user_method.py": code,
        }
        given = [*QUICK, "--config-dir", "mine", "algorithm=user"]
        one_line = partial(refused, given, files, {})
        work = partial(traced, files) if what in TRACED else one_line
        yield Case("mistake", f"method: {what}", work)


def cases(quick: bool) -> Iterator[Case]:
    """Mistakes by hand, and odd values of every key of every choice."""
    yield from islice(mistakes(), 0, None, 15 if quick else 1)
    chosen = list(odd_values(keys()))
    for choice, key, value in random.Random(0).sample(chosen, 18) if quick else chosen:
        given = [*QUICK, *([choice] if choice else []), f"{key}={value}"]
        yield Case("odd value", f"{choice} {key}={value}", partial(generated, given))
