"""What a Flower client does; a module of its own, so that Ray sends its name and not its code and
data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.against.networks import OPTIMIZERS, build, random_clients
from benchmarks.against.steps import fit
from benchmarks.against.task import Task

app = ClientApp()


@cache
def prepared(text: str) -> tuple[Task, list[tuple[Tensor, Tensor]], list[nn.Sequential]]:
    """The task, all clients' data and the models to load weights into; once per process."""
    torch.set_num_threads(1)
    task = Task.from_json(text)
    return task, random_clients(task), [build(task.layers) for _ in range(task.models)]


def batches(examples: int, batch: int | None) -> Sequence[Tensor | slice]:
    """Indices of an epoch's steps, shuffled; all examples in order when `batch` is None."""
    if batch is None:
        return [slice(None)]
    order = torch.randperm(examples)
    return [order[start : start + batch] for start in range(0, examples, batch)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Chooses the model of least loss where there are several, trains it and sends it back."""
    task, clients, models = prepared(str(message.content.config_records["config"]["task"]))
    x, y = clients[int(context.node_config["partition-id"])]
    sent = message.content.array_records["arrays"].to_torch_state_dict()
    for k, model in enumerate(models):
        prefix = f"{k}/"
        model.load_state_dict(
            {n.removeprefix(prefix): v for n, v in sent.items() if n.startswith(prefix)}
        )
    best = 0
    if task.models > 1:
        with torch.no_grad():
            losses = [float(functional.cross_entropy(model(x), y)) for model in models]
        best = losses.index(min(losses))
    optimizer = OPTIMIZERS[task.optimizer](models[best].parameters(), lr=task.lr)
    for _ in range(task.epochs):
        met = batches(len(y), task.batch)
        fit(models[best], optimizer, ((x[index], y[index]) for index in met))
    state = {f"{best}/{name}": value for name, value in models[best].state_dict().items()}
    reply = RecordDict(
        {
            "arrays": ArrayRecord(state),
            "metrics": MetricRecord({"num-examples": len(y), "cluster": best}),
        }
    )
    return Message(content=reply, reply_to=message)
