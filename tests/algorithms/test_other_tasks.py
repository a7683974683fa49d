"""Every method computes every task, or says in one line that it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from digits_jobs import config_in
from fronts import Front
from planted import ALGORITHMS, configured, rounds_of
from test_resume_everything import check_config
from toy_tasks import FEATURES, TASKS, WIDE, dataset_for, federation_for

from fedclust.algorithms.fedper import FedPer
from fedclust.config.fits import check_suits
from fedclust.engines.fused import FusedEngine
from fedclust.helpers.errors import UserError
from fedclust.metrics.accuracy import accuracy, validation_accuracy
from fedclust.models.mlp import mlp


@pytest.mark.full
def test_an_interrupted_regression_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    data = dataset_for(TASKS["huber"], 160)
    y = {"y_train": data.y_train.numpy(), "y_test": data.y_test.numpy()}
    np.savez(tmp_path / "a.npz", x_train=data.x_train.numpy(), x_test=data.x_test.numpy(), **y)
    config = {
        **config_in("feddrift", "newcomers"),
        "dataset": {"_target_": "fedclust.datasets.npz.Npz", "path": str(tmp_path / "a.npz")},
        "partition": {"_target_": "fedclust.partitions.iid.IID", "num_clients": 8},
        "task": {"_target_": "fedclust.tasks.regression.Regression", "loss_by": "huber"},
        "engine": "loop",
        "validation": 0.25,
    }
    check_config(config, tmp_path, after=(1,))


READS = {"feroma", "flux", "newcomers"}  # the losses of a softmax without weights
# one of every class: "weighted", "multilabel", "mse", and what else conf/task has
REFUSES: dict[str, set[str]] = {
    name: READS if TASKS[name].targets == "classes" else {"fedrc", "by_attribute", *READS}
    for name in {type(task): name for name, task in reversed(TASKS.items())}.values()
}


@pytest.mark.thinned
@pytest.mark.parametrize("name", REFUSES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_method_computes_every_task_or_refuses_it(algorithm: str, name: str) -> None:
    method: Any = configured(algorithm)
    if algorithm in REFUSES[name]:
        with pytest.raises(UserError, match=r"task.*\(algorithm\)"):
            check_suits(TASKS[name], algorithm=method)
        return
    check_suits(TASKS[name], algorithm=method)
    fed = replace(federation_for(TASKS[name], 240, 12), group=torch.arange(12) % 3)
    body = [8] if isinstance(method, FedPer) else []
    clients = Front(FusedEngine(mlp((FEATURES,), WIDE, hidden=body), fed.pool))
    first, second = rounds_of(fed, 2)
    state, _ = method.init(clients.at(first), first)
    for rnd in (first, second):
        state, _ = method.round(state, clients.at(rnd), rnd)
    result = clients.at(second).evaluate(method.serve(state, clients.at(second), second))
    values, own = accuracy(result, second), fed.pool.task.score.name
    assert np.isfinite(values[own])
    assert set(values) >= {own, f"{own}_client_mean", "test_loss", "served"}
    assert set(validation_accuracy(result, fed.pool.task)) >= {f"validation_{own}"}
