"""Values that nobody means: odd ones of every key of conf/, and mistakes written by hand."""

from __future__ import annotations

import random
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
HUGE = "1000000000000000000000000000000"
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
BY_HAND: Sequence[tuple[str, ...]] = (
    # a group given a number, or nothing
    ("dataset=123",),
    ("dataset=null",),
    ("algorithm=null",),
    ("algorithm=3",),
    ("algorithm=[lcfl]",),
    ("model={a: 1}",),
    ("dataset=../algorithm/lcfl",),
    ("scale=nope",),
    ("tracker=0",),
    # removed or null parts
    ("~rounds",),
    ("~seeds",),
    ("~dataset",),
    ("~dataset._target_",),
    ("~algorithm.solver",),
    ("algorithm.solver=null",),
    ("algorithm.solver=3",),
    ("solver=null",),
    ("+tracker._partial_=true",),
    ("+dataset._args_=[1]",),
    ("+algorithm._recursive_=false",),
    ("++algorithm._target_=null",),
    ("algorithm.cluster_metric=null",),
    ("algorithm.cluster_method={}",),
    # numbers far outside
    (f"rounds={HUGE}",),
    (f"seeds={HUGE}",),
    (f"seeds=[{HUGE}]",),
    ("seeds=[1.5]",),
    ("seeds=[[0]]",),
    ("solver.lr=1e300",),
    ("solver=adam", "solver.momentum=0.9"),
    ("solver=adam", "solver.beta1=1"),
    ("solver.clip_norm=0",),
    ("solver.momentum=0", "solver.keep=client"),
    ("solver=adam", "solver.keep=client", "algorithm=pfedme"),
    ("solver.clip_norm=1", "algorithm=scaffold"),
    ("solver.schedule=cosine",),
    ("solver.schedule=step", "solver.every=1000"),
    ("solver.schedule=cosine", "solver.length=1000"),
    ("solver.schedule=constant", "solver.decay=0.9"),
    ("solver.warmup=1000",),
    ("solver.schedule_by=step", "algorithm=apfl"),
    ("solver.epochs=0",),
    ("solver=sgd", "solver.nesterov=true"),
    ("solver=momentum", "solver.nesterov=true", "solver.dampening=0.5"),
    ("solver=rmsprop", "solver.eps=0"),
    ("solver=adagrad", "algorithm=scaffold"),
    ("solver=adam", "algorithm=apfl"),
    ("solver=adamw", "algorithm=cfl_mgd"),
    ("solver.lr=inf",),
    ("dataset=synthetic", "dataset.alpha=inf"),
    ("dataset=synthetic", "dataset.alpha=1e300"),
    ("partition.num_clients=1000000000000",),
    ("dataset=image_folder", "dataset.path=.", "dataset.size=100000"),
    ("num_clusters=1000000000",),
    ("algorithm=ifca", "algorithm.num_clusters=100000"),
    ("algorithm=fesem", "num_clusters=9"),
    ("algorithm=lcfl", "cluster_method=hdbscan", "cluster_method.min_cluster_size=100"),
    ("algorithm=lcfl", "cluster_method=optics", "cluster_method.min_samples=100"),
    ("algorithm=lcfl", "cluster_method=kmedoids", f"cluster_method.starts={HUGE}"),
    # servers, robust means, hostile clients and privacy
    ("server=adam", "algorithm=scaffold"),
    ("server=yogi", "algorithm=fedadam"),
    ("server=sgd", "server.momentum=1"),
    ("+server.rate=0.1",),
    ("aggregation=trimmed_mean", "aggregation.trim=0.5"),
    ("aggregation=krum", "clients_per_round=2"),
    ("aggregation=median", "algorithm=fedbcd"),
    ("attack=sign_flip", "attack.share=0.6"),
    ("attack=alie", "attack.spread=one_group", "partition=iid"),
    ("attack=label_flip", "task=regression"),
    ("privacy=client", "algorithm=lcfl"),
    ("privacy=client", "algorithm=ifca", "common.aggregation=by_samples"),
    ("privacy=client", "privacy.clip=null", "algorithm=ifca", "common.aggregation=uniform"),
    ("privacy=client", "algorithm=ifca", "common.aggregation=uniform", "privacy.delta=0.5"),
    # tasks that do not fit the data, or a part
    ("task=nope",),
    ("task=regression",),
    ("task=multilabel", "algorithm=fedrc"),
    ("task=regression", "partition=dirichlet", "dataset=synthetic"),
    ("task=regression", "task.delta=0"),
    ("task=multilabel", "task.pos_weight=[-1]"),
    ("task.class_weight=[1,2]",),
    ("task.class_weight=heavy",),
    ("task.label_smoothing=1",),
    ("objective=mae",),
    # what a model begins with, and what of it is trained
    ("weights=nothing.pth",),
    ("weights=.",),
    ("weights=3",),
    ("frozen=[nope]",),
    ("frozen=3",),
    ("frozen=[[a]]",),
    ("frozen=['*']",),
    ("lora={rank: 0}",),
    ("lora={layers: [nope]}",),
    ("lora={layers: 3}",),
    ("lora=3",),
    ("model=linear", "lora={}"),
    ("features={}",),
    ("features=3",),
    ("features={model: resnet18}",),
    ("features={model: resnet18, weights: nothing.pth}",),
    ("features={model: {_target_: os.system}, weights: nothing.pth}",),
    ("model=lstm",),
    ("model=text_cnn", "model.kernels=[0]"),
    ("scores=[perplexity]", "task=regression"),
    ("model=mlp", "model.hidden=[1000000,1000000]"),
    ("model=mlp", "model.hidden=[0]"),
    ("model=mlp", "model.hidden=[1.5]"),
    ("model=mlp", "model.hidden=abc"),
    ("max_rows=1e9",),
    ("clients_per_round=9",),
    ("participation=1.0000001",),
    ("threads=100000",),
    # scores of predictions
    ("scores=auroc",),
    ("scores=[auroc,auroc]",),
    ("scores=[rmse]",),
    ("scores=[null]",),
    ("scores=[[auroc]]",),
    ("scores=[{a: 1}]",),
    ("scores=[{_target_: os.system}]",),
    ("scores=[{_target_: fedclust.algorithms.fedavg.FedAvg}]",),
    ("scores=null",),
    ("scores=[confusion]", "score_every=0"),
    ("score_every=2",),
    ("scores=[ece]", "score_every=1", "eval_every=2", "rounds=2"),
    ("predictions=3",),
    ("objective=validation_auroc",),
    # lists
    ("scenario=newcomers", "scenario.arrive_at=[1.5]"),
    ("scenario=newcomers", "scenario.arrive_at=3"),
    ("scenario=newcomers", "scenario.arrive_at=[abc]"),
    ("partition=class_subsets", "partition.subsets=[abc]"),
    ("partition=class_subsets", "partition.subsets=3"),
    ("partition=class_subsets", "partition.subsets=[[0,99]]"),
    # accepted once, though nobody reads it
    ("common.aggregation=nonsense",),
    ("common.cluster_participation=0",),
    ("common.cluster_participation=half",),
    ("common.baseline_aggregation=mean",),
    ("+common.foo=1",),
    ("+data.foo=1",),
    ("++data.foo=1",),
    ("++foo=1",),
    ("+solver.foo=1",),
    ("scale.name=laptop",),
    ("+scale.foo=1",),
    # reports that cannot be made
    ("report={metric: nonsense}",),
    ("report={metrik: accuracy}",),
    ("report={metric: [accuracy]}",),
    ("report={score: least}",),
    ("report={iterations: [abc]}",),
    ("report={iterations: 3}",),
    ("report={figure: {rows: [nonsense]}}",),
    ("report={figure: {x: seconds}}",),
    ("report={claims: [{kind: nonsense}]}",),
    ("report={claims: [{kind: at_least, arm: a, value: abc}]}",),
    ("report={claims: [{kind: at_least, arm: a}]}",),
    ("report={claims: [3]}",),
    ("report=3",),
    ("report=abc",),
    ("report=[]",),
    # folders
    ("name=../mine",),
    ("++name=../../mine",),
    ("name=/mine",),
    ("name=${oc.env:HOME}",),
    ("name=${nonsense}",),
    ("name=${name}",),
    ("rounds=${eval_every}", "eval_every=${rounds}"),
    ("name=",),
    # code from elsewhere
    ("tracker._target_=os.system",),
    ("tracker._target_=fedclust.engines.fused.native.compiled._runs",),
    ("algorithm._target_=fedclust.runtime.folder.torch.load",),
    ("algorithm._target_=shutil.copyfile",),
    ("model._target_=fedclust.models.mlp.nn.Linear",),
    ("hydra.callbacks.mine._target_=os.system", "+hydra.callbacks.mine.command=ls"),
    # flags
    ("--nonsense",),
    ("--cfg", "nonsense"),
    ("--config-dir", "nowhere"),
    ("--config-dir",),
    ("rounds",),
    ("=3",),
    ("rounds=",),
    ("rounds=3=4",),
    ("rounds={",),
    ("algorithm=lcfl,",),
    ("algorithm=lcfl,ifca",),
    ("-m", "algorithm="),
    ("-m", "hydra/launcher=submitit_slurm", "rounds=1,2"),
    ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=0", "rounds=1,2"),
    ("-m", "hydra/launcher=nonsense"),
    ("hydra/launcher=submitit_local", "-m", "hydra.launcher.timeout_min=abc"),
    ("experiment=nonsense",),
    ("experiment=../config",),
    ("experiment=quickstart", "scale=laptop", "rounds=abc"),
)
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
    for arguments in BY_HAND:
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
