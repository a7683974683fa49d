"""The readable reference: one client at a time, autograd, `torch.optim`; bit-identical in any
company.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedclust.engines.schedule import Schedule, schedule
from fedclust.models.foreign import Runnable, adopt
from fedclust.models.params import layout, unflatten
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import LocalResult, Pool, Shards

_BLOCK = 1000  # examples of one forward pass outside training, which bounds its memory


class LoopEngine:
    """Plain PyTorch, row by row; see `fedclust.verbs.Engine` for the verbs.

    A row without examples takes no step and returns its start, with loss and gradient 0.
    """

    name = "loop"

    def __init__(self, model: nn.Module, pool: Pool):
        self.pool = pool
        self.model = adopt(model, pool.shape).to(pool.x.device)
        self.layout = layout(self.model)
        self.num_params = self.layout.num_params

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self.model.draw(stream.torch()).to(self.pool.x.device)

    def train(
        self,
        models: Tensor,
        label: Tensor,
        shards: Shards,
        solver: Solver,
        lr: float,
        slots: Tensor | None = None,
        anchor: Tensor | None = None,
    ) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]] and, with momentum,
        slots[label[i]].
        """
        plan = schedule(shards, solver)
        params, loss = models[label], torch.zeros(len(shards), device=models.device)
        moving = None
        if solver.momentum:
            moving = torch.zeros_like(params) if slots is None else slots[label]
        for row in range(len(shards)):
            if plan.steps[row] > 0:
                velocity = None if moving is None else moving[row]
                pull = params[row].clone() if anchor is None else anchor[row]
                loss[row] = self._train_row(
                    params[row], velocity, pull, row, shards, plan, solver, lr
                )
        return LocalResult(params=params, slots=moving, loss=loss, steps=plan.steps)

    def _train_row(
        self,
        params: Tensor,
        velocity: Tensor | None,
        anchor: Tensor,
        row: int,
        shards: Shards,
        plan: Schedule,
        solver: Solver,
        lr: float,
    ) -> Tensor:
        """Mean loss of the steps of one row; `params` [P] and `velocity` [P] are moved in place."""
        model = self._load(params)
        centre = unflatten(anchor, self.layout)
        sgd = torch.optim.SGD(
            model.parameters(), lr=lr, momentum=solver.momentum, weight_decay=solver.weight_decay
        )
        buffers = {} if velocity is None else unflatten(velocity, self.layout)
        for name, value in model.named_parameters():
            if velocity is not None:
                sgd.state[value]["momentum_buffer"] = buffers[name].clone()
        total = torch.zeros((), device=params.device)
        for step in range(int(plan.steps[row])):
            size = int(plan.size[row, step])
            index = shards.index[row, plan.position[row, step, :size]]
            masks = model.masks(shards.key[row : row + 1], step, size)
            x = self.pool.training_inputs(
                index.unsqueeze(0), shards.key[row : row + 1], step
            ).squeeze(0)
            logits = model(x, {layer: mask[0] for layer, mask in masks.items()})
            loss = F.cross_entropy(logits, self.pool.y[index])
            sgd.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for name, value in model.named_parameters():
                assert value.grad is not None
                if solver.proximal:
                    value.grad.add_(value.detach() - centre[name], alpha=solver.proximal)
                if name in model.l2:
                    value.grad.add_(value.detach(), alpha=2 * model.l2[name])
            sgd.step()
            total += loss.detach()
        moved = unflatten(params, self.layout)
        for name, value in model.named_parameters():
            moved[name].copy_(value.detach())
            if velocity is not None:
                buffers[name].copy_(sgd.state[value]["momentum_buffer"])
        return total / plan.steps[row]

    @torch.no_grad()
    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """Mean loss of every model [K, P] on every shard, [C, K] nats per example."""
        out = torch.zeros(len(shards), len(models), device=models.device)
        for k in range(len(models)):
            model = self._load(models[k])
            for row in range(len(shards)):
                for x, y in self._blocks(shards, row):
                    out[row, k] += F.cross_entropy(model(x), y, reduction="sum")
        return out / shards.count.clamp(min=1).unsqueeze(1)

    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        out = torch.zeros(len(shards), self.num_params, device=models.device)
        for row in range(len(shards)):
            model = self._load(models[label[row]])
            parameters = list(model.parameters())
            for x, y in self._blocks(shards, row):
                loss = F.cross_entropy(model(x), y, reduction="sum")
                parts = torch.autograd.grad(loss, parameters)
                out[row] += torch.cat([part.flatten() for part in parts])
        return out / shards.count.clamp(min=1).unsqueeze(1)

    @torch.no_grad()
    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """Summed loss [C] float64 and correct predictions [C] int64 of models[label[i]] on shard
        i.
        """
        loss_sum = torch.zeros(len(shards), dtype=torch.float64, device=models.device)
        correct = torch.zeros(len(shards), dtype=torch.int64, device=models.device)
        for row in range(len(shards)):
            model = self._load(models[label[row]])
            for x, y in self._blocks(shards, row):
                logits = model(x)
                loss_sum[row] += F.cross_entropy(logits, y, reduction="none").sum(
                    dtype=torch.float64
                )
                correct[row] += (logits.argmax(1) == y).sum()
        return loss_sum, correct

    def _load(self, params: Tensor) -> Runnable:
        """A copy of the model with the parameters `params` [P], its own memory."""
        model = copy.deepcopy(self.model)
        values = unflatten(params, self.layout)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(values[name])
        return model

    def _blocks(self, shards: Shards, row: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and classes of one row's examples, at most `_BLOCK` at a time."""
        count = int(shards.count[row])
        for first in range(0, count, _BLOCK):
            index = shards.index[row, first : min(first + _BLOCK, count)]
            yield self.pool.inputs(index), self.pool.y[index]
