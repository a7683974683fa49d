"""Pools of random numbers with the targets of each task."""

from __future__ import annotations

import torch
import yaml
from hydra.utils import get_object

from fedclust.config.data import federate
from fedclust.config.tree import CONF
from fedclust.core.task import Classification, Task
from fedclust.core.types import Dataset, Federation, Pool
from fedclust.partitions.iid import IID
from fedclust.tasks.multilabel import Multilabel
from fedclust.tasks.regression import Regression

FEATURES, WIDE = 4, 3  # of inputs, and classes or numbers of a target
TASKS: dict[str, Task] = {
    "weighted": Classification(class_weight=[1.0, 2.0, 0.5]),
    "balanced": Classification(class_weight="balanced"),
    "smoothed": Classification(label_smoothing=0.1),
    "multilabel": Multilabel(),
    "pos_weight": Multilabel(pos_weight=[1.0, 3.0, 0.5]),
    "mse": Regression(),
    "mae": Regression(loss_by="mae"),
    "huber": Regression(loss_by="huber", delta=0.5),
}
# every other task of a file below conf/task, by its defaults
for _file in sorted((CONF / "task").glob("*.yaml")):
    _class = get_object(yaml.safe_load(_file.read_text())["_target_"])
    if _class not in {type(task) for task in TASKS.values()}:
        TASKS[_file.stem] = _class()


def dataset_for(task: Task, examples: int = 80, seed: int = 0) -> Dataset:
    """Targets that follow from the inputs, with noise; the last quarter is for tests."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, FEATURES, generator=draw)
    z = x @ torch.randn(FEATURES, WIDE, generator=draw)
    z += 0.3 * torch.randn(examples, WIDE, generator=draw)
    y = {
        "classes": z.argmax(1),
        "flags": (z > 0).to(torch.uint8),
        "numbers": 100 + torch.tensor([1.0, 10.0, 0.1]) * z.double(),
    }[task.targets]
    cut = examples * 3 // 4
    return Dataset(
        name="toy",
        x_train=x[:cut],
        y_train=y[:cut],
        x_test=x[cut:],
        y_test=y[cut:],
        num_classes=WIDE,
        scale=torch.ones(1),
        shift=torch.zeros(1),
    )


def pool_for(task: Task, examples: int = 80) -> Pool:
    """The pool of this dataset."""
    return federation_for(task, examples).pool


def federation_for(task: Task, examples: int = 80, clients: int = 4) -> Federation:
    """Its federation, seed 0."""
    dataset = dataset_for(task, examples)
    return federate(dataset, IID(num_clients=clients), [0], torch.device("cpu"), task=task)[0]
