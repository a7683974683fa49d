"""What a Flower client does; a module of its own, so that Ray sends its name and not its code and data."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.against.task import Task, build, random_clients

app = ClientApp()


@cache
def prepared(text: str) -> tuple[Task, list[tuple[Tensor, Tensor]], list[nn.Sequential]]:
    """The task, all clients' data and the models to load weights into; once per process."""
    torch.set_num_threads(1)
    task = Task.from_json(text)
    return task, random_clients(task), [build(task.layers) for _ in range(task.models)]


@app.train()
def train(message: Message, context: Context) -> Message:
    """Chooses the model of least loss where there are several, trains it and sends it back."""
    task, clients, models = prepared(str(message.content["config"]["task"]))
    x, y = clients[int(context.node_config["partition-id"])]
    sent = message.content["arrays"].to_torch_state_dict()
    for k, model in enumerate(models):
        prefix = f"{k}/"
        model.load_state_dict({n.removeprefix(prefix): v for n, v in sent.items() if n.startswith(prefix)})
    best = 0
    if task.models > 1:
        with torch.no_grad():
            losses = [float(functional.cross_entropy(model(x), y)) for model in models]
        best = losses.index(min(losses))
    sgd = torch.optim.SGD(models[best].parameters(), lr=task.lr)
    for _ in range(task.epochs):
        order = None if task.batch is None else torch.randperm(len(y)).split(task.batch)
        for index in [slice(None)] if order is None else order:
            sgd.zero_grad()
            functional.cross_entropy(models[best](x[index]), y[index]).backward()
            sgd.step()
    state = {f"{best}/{name}": value for name, value in models[best].state_dict().items()}
    reply = RecordDict(
        {
            "arrays": ArrayRecord(state),
            "metrics": MetricRecord({"num-examples": len(y), "cluster": best}),
        }
    )
    return Message(content=reply, reply_to=message)
