"""What a job has trained, from its folder alone: a client's network, and its predictions.

`inputs/seed=S.json` says how inputs were made; the last checkpoint has what clients are served.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedclust.config.objects import Objects
from fedclust.core.task import Task
from fedclust.core.types import Federation, Pool, Served
from fedclust.datasets.checks import read
from fedclust.datasets.csv import csv_table
from fedclust.datasets.raw import of_new_client, prepared
from fedclust.helpers.errors import DataError, RunFolderError, require
from fedclust.helpers.files import plain_file, regular
from fedclust.models.lora import Lora
from fedclust.models.params import Layout
from fedclust.models.weights import beginning

_AT_ONCE = 1024  # examples of one pass
_AGAIN = "run the job again, a finished one after deleting its folder"


def inputs_of(seed: int) -> str:
    """The file of a job's folder that says how the inputs of a seed were made."""
    return f"inputs/seed={seed}.json"


def write_inputs(file: Path, fed: Federation, names: Layout) -> None:
    """Write how a seed's inputs were made, and what the data decide of its network."""
    pool, task = fed.pool, fed.pool.task
    called = fed.names.classes if task.targets == "classes" else fed.names.targets
    zero = torch.zeros(pool.num_classes, dtype=torch.float64, device=pool.x.device)
    low, high = (task.in_unit(one).tolist() for one in (zero, zero + 1))
    outputs: dict[str, Any] = {"names": list(called)}
    if task.targets == "numbers":  # a standardised y is y * factor + offset in the unit of the file
        factor = [b - a for a, b in zip(low, high, strict=True)]
        outputs |= {"offset": low, "factor": factor}
    network = {
        "in_shape": list(pool.shape),
        "num_classes": task.width(pool.num_classes),
        "vocabulary": pool.vocabulary,
        "names": list(names.names),
        "shapes": [list(shape) for shape in names.shapes],
        "counts": list(names.counts),
    }
    content = {**fed.raw, "outputs": outputs, "network": network}
    file.write_text(json.dumps(content) + "\n", encoding="utf-8")


def saved_served(served: Served) -> dict[str, Any]:
    """What every client is served, as a checkpoint holds it; numbers of all models once."""
    models = served.models
    kept: dict[str, Any] = {"label": served.label, "weight": served.weight}
    alike = torch.ones_like(models[0], dtype=torch.bool)
    for row in models[1:]:  # one by one, since all can be gigabytes
        alike &= row == models[0]
    if len(models) > 1 and 2 * int(alike.sum()) > len(alike):
        kept |= {"shared": models[0], "columns": ~alike, "models": models[:, ~alike]}
    else:  # often a field of the State, which the file then holds once
        kept["models"] = models
    if (own := served.own) is not None:
        kept["own"] = {name: getattr(own, name) for name in ("columns", "values", "known")}
    return kept


@dataclass(frozen=True)
class Trained:
    """What a seed of a job has at its end; `user_dir` is the folder given with --config-dir."""

    folder: Path
    config: Mapping[str, Any]
    seed: int
    user_dir: Path | None = None

    def network(self, client: int | str) -> nn.Module:
        """The network that a client uses, in evaluation, its last layer's outputs as they are; of a
        client that mixes several, a network whose predictions are theirs, mixed.

        Raises:
            ConfigError: there is no such client, or the network's code is another one now.
            RunFolderError: the folder holds no trained models of the seed.
        """
        return self._network(self.about, self.number(client))

    def for_new_client(self, given: Any, name: str) -> Trained:
        """The same for a client that the job did not know, whose rows `given` are, all of them; see
        `fedclust.datasets.raw.of_new_client`.
        """
        about = of_new_client(self.about, given, self.config["dataset"].get("fill"), name)
        if about is self.about:
            return self
        new = replace(self)
        vars(new)["about"] = about  # in place of what the file says
        return new

    def predict(self, given: Any, client: int | str) -> tuple[Tensor, list[str]]:
        """What the client's model says of new examples, [N, Y] float64: probabilities of classes or
        labels, or numbers in the unit of the file; and what each of Y is called, if it has a name.

        Args:
            given: as for `fedclust.datasets.raw.prepared`, or the path of a CSV like that of the
                job.
            client: its number or name.

        Raises:
            DataError: the examples are not like those of the job.
            ConfigError, RunFolderError: see `network`.
        """
        if isinstance(given, str | Path):
            given = self.table(Path(given), self.inputs())
        factor, offset = self._unit()
        said = self.task().predict(self.outputs(given, client)) * factor + offset
        return said, list(self.about["outputs"]["names"])

    def outputs(self, given: Any, client: int | str) -> Tensor:
        """What the network of a client gives for new examples, [N, Y] float64; see `predict`."""
        about = self.about
        number = self.number(client)
        pool, network = self.pool(given, number), self._network(about, number)
        parts = []
        with torch.no_grad():
            for rows in torch.split(torch.arange(len(pool.x)), _AT_ONCE):
                parts.append(network(pool.inputs(rows)).double())
        width = int(about["network"]["num_classes"])
        return torch.cat(parts) if parts else torch.zeros(0, width, dtype=torch.float64)

    def pool(self, given: Any, client: int) -> Pool:
        """New examples as the network of a client sees them; without labels."""
        nothing = torch.zeros(0, dtype=torch.int64)
        empty = Pool(x=nothing, y=nothing, scale=nothing, shift=nothing, num_classes=0)
        return self._features(prepared(self.about, given, client, empty))

    def losses(self, given: Any, targets: Tensor, client: int) -> Tensor:
        """The loss of a client's network for every new example, [N] float64.

        Args:
            targets: [N] numbers of classes, or [N, T] flags or numbers in the unit of the file.
        """
        if self.task().targets != "classes":
            factor, offset = self._unit()
            targets = (targets - offset) / factor
        return self.task().loss(self.outputs(given, client), targets)

    def _unit(self) -> tuple[Tensor, Tensor]:
        """What numbers of the pool are multiplied by, and what is added, for the unit of the file;
        1 and 0 of what are no numbers.
        """
        unit = {"factor": 1.0, "offset": 0.0} | self.about["outputs"]
        factor, offset = (torch.tensor(unit[k]).double() for k in ("factor", "offset"))
        return factor, offset

    def models(self) -> Tensor:
        """[M] which model each client uses, a number for each that is not another's; -1 for clients
        that nobody serves.
        """
        given, label = self._given(), self.clusters()
        if given["weight"] is None and given.get("own") is None:
            return label
        return torch.where(label >= 0, torch.arange(len(label)), -1)

    def clusters(self) -> Tensor:
        """[M] int64 the cluster of each client, of a mixture the heaviest; -1 for none."""
        label: Tensor = self._given()["label"]
        return label

    def inputs(self) -> list[str]:
        """The columns of the job's table that are inputs.

        Raises:
            DataError: the job's examples are no table.
        """
        if "columns" not in self.about:
            raise DataError(
                f"{self.folder}: the job's examples are no table: give an array of them"
            )
        return [one["name"] for one in self.about["columns"]]

    def table(self, path: Path, needed: Sequence[str], words: Sequence[str] = ()) -> Any:
        """The table of a CSV file, see `fedclust.datasets.csv.csv_table`."""
        plain_file(path, "predict: ", "give a CSV like that of the job, or a frame")
        how = self.config["dataset"]
        signs = str(how.get("separator", ",")).replace("\\t", "\t"), str(how.get("decimal", "."))
        encoding = str(how.get("encoding", "utf-8"))
        load = partial(csv_table, "predict", path, needed, words, *signs, encoding)
        return read("predict", path, load, key="the file")

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `write_inputs` wrote."""
        file = self.folder / inputs_of(self.seed)
        try:
            about: dict[str, Any] = json.loads(regular(file).read_text(encoding="utf-8"))
            _ = about["network"], about["outputs"], about["shape"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = "is not there" if isinstance(error, FileNotFoundError) else "cannot be read"
            raise RunFolderError(f"{file} {why}: {_AGAIN}") from error
        return about

    def number(self, client: int | str) -> int:
        """The number of a client by its name, or as it is."""
        names = self.about["clients"]
        if isinstance(client, str):
            require(client in names, "client", client, f"a number or one of {', '.join(names)}")
            return int(names.index(client))
        most = len(self._given()["label"]) - 1
        require(0 <= client <= most, "client", client, f"0 to {most}")
        return client

    def _given(self) -> dict[str, Any]:
        """What clients are served at the end."""
        last = self.folder / "checkpoints" / f"round={self.config['rounds'] - 1}"
        file = last / f"seed={self.seed}.pt"
        try:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            failed, served = content["failed"], content.get("served")
        except FileNotFoundError as error:
            raise RunFolderError(
                f"{file} is not there: the job is not finished, or its checkpoints were deleted"
            ) from error
        except Exception as error:  # torch raises many kinds
            raise RunFolderError(f"{file} cannot be read: {_AGAIN}") from error
        if failed is not None:
            raise RunFolderError(f"seed {self.seed} has no models: {failed}")
        if served is None:
            raise RunFolderError(f"{file} was written by a version that kept no models: {_AGAIN}")
        return dict(served)

    def _rows(self, client: int) -> tuple[Tensor, Tensor]:
        """Models [k, P] of a client, and the share of each, [k]."""
        given = self._given()
        label = int(given["label"][client])
        require(label >= 0, "client", client, "one that has a model: nobody serves it yet")
        weight, which = torch.ones(1), torch.tensor([label])
        if given["weight"] is not None:
            which = given["weight"][client].nonzero().flatten()
            weight = given["weight"][client][which]
        rows = given["models"][which]
        if "shared" in given:
            part, rows = rows, given["shared"].repeat(len(which), 1)
            rows[:, given["columns"]] = part
        own = given.get("own")
        if own is not None and bool(own["known"][client]):
            rows = rows.clone()
            rows[:, own["columns"]] = own["values"][client]
        return rows, weight

    def _network(self, about: Mapping[str, Any], client: int) -> nn.Module:
        rows, weight = self._rows(client)
        each = [self._filled(about["network"], row) for row in rows]
        return each[0] if len(each) == 1 else _Mixture(each, weight, self.task())

    def _filled(self, about: Mapping[str, Any], row: Tensor) -> nn.Module:
        """The config's network with the parameters and statistics of a row [P]."""
        config, objects = self.config, Objects(self.user_dir)
        shape, vocabulary = tuple(about["in_shape"]), about["vocabulary"]
        given = {"in_shape": shape, "num_classes": about["num_classes"], "vocabulary": vocabulary}
        make = partial(objects.make, config["model"], "model", **given)
        lora = config.get("lora")
        adapters = None if lora is None else objects.of(Lora, lora, "lora")
        module = beginning(make, config.get("weights"), config.get("frozen") or (), adapters)
        layout = Layout(names=tuple(about["names"]), shapes=tuple(map(tuple, about["shapes"])))
        return filled_with(module, row, layout, about["counts"])

    def task(self) -> Task:
        """The job's task, without what it takes from training rows."""
        task: Task = Objects(self.user_dir).make(self.config["task"], "task")
        return task

    def _features(self, pool: Pool) -> Pool:
        """The pool as the job's models see it, through a network if it has one for features."""
        if (node := self.config.get("features")) is None:
            return pool
        from fedclust.datasets.features import Features

        objects, own = Objects(self.user_dir), None
        features = objects.of(Features, node, "features")
        if isinstance(features.model, Mapping):
            own = partial(objects.make, features.model, "model", vocabulary=pool.vocabulary)
        computed, one = features.computed(pool, own), torch.ones(1)
        labels = pool.y
        return Pool(x=computed, y=labels, scale=one, shift=one * 0, num_classes=pool.num_classes)


def filled_with(module: nn.Module, row: Tensor, where: Layout, counts: list[str]) -> nn.Module:
    """A module in evaluation whose parameters and statistics are those of a row [P].

    Args:
        where: each lies in it; names may begin with `module.`, where engines put the module inside
            another one.
        counts: names of statistics that are whole numbers.

    Raises:
        ConfigError: the module has others.
    """
    there = dict(module.named_parameters()) | dict(module.named_buffers())
    values = torch.split(row, list(where.sizes))
    for name, shape, value in zip(where.names, where.shapes, values, strict=True):
        own = name if name in there else name.removeprefix("module.")
        fits = own in there and tuple(there[own].shape) == shape
        allowed = f"the network that was trained, with {own} of shape {shape}"
        require(fits, "model", type(module).__name__, allowed)
        new = value.view(shape).clone()
        there[own].data = new.round().to(there[own].dtype) if name in counts else new
    return module.eval()


class _Mixture(nn.Module):
    """Several networks whose predictions are averaged."""

    def __init__(self, networks: list[nn.Module], weight: Tensor, task: Task) -> None:
        super().__init__()
        self.networks, self._task = nn.ModuleList(networks), task
        self.weight = nn.Buffer(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [B, Y] of x [B, *shape], by which one network says what they say, float64."""
        mixed = None
        weight: Tensor = self.weight.double()
        for network, share in zip(self.networks, weight, strict=True):
            mixed = self._task.mix(mixed, network(x), share)
        assert mixed is not None
        classes = self._task.targets == "classes"  # settling asks for targets, whatever they are
        y = torch.zeros(len(x), dtype=torch.int64) if classes else torch.zeros_like(mixed)
        return self._task.settle(mixed, y)[0]
