"""Many rows at once by `torch.func.vmap`: for any model, the fallback where `fused` does not know
a layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional as F

from fedclust.engines.chunks import auto_rows, each_chunk
from fedclust.engines.schedule import num_steps, schedule
from fedclust.models.foreign import adopt
from fedclust.models.params import flatten, layout, unflatten
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import LocalResult, Pool, Shards

_EXAMPLES = 4096  # examples every model meets in one pass of the loss table
_WIDTH = 256  # examples per row in one pass of gradient and evaluation
_Named = dict[str, Tensor]
_Masks = dict[int, Tensor]


class VmapEngine:
    """Stacked rows by `vmap`; see `fedclust.verbs.Engine` for the verbs.

    A row without examples takes no step and returns its start, with loss and gradient 0.

    Attributes:
        max_rows: rows computed at once, None to choose by the cache or the device's memory.
    """

    name = "vmap"

    def __init__(self, model: nn.Module, pool: Pool, max_rows: int | None = None):
        self.pool = pool
        self.model = adopt(model, pool.shape).to(pool.x.device)
        self.layout = layout(self.model)
        self.num_params = self.layout.num_params
        self.max_rows = max_rows

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
        steps = num_steps(shards, solver)
        params = models.new_empty(len(shards), self.num_params)
        moving = torch.empty_like(params) if solver.momentum else None
        loss = torch.zeros(len(shards), device=models.device)

        def work(rows: Tensor) -> None:
            part = models[label[rows]]
            velocity = None
            if moving is not None:
                velocity = torch.zeros_like(part) if slots is None else slots[label[rows]]
            pull = None if anchor is None else anchor[rows]
            loss[rows] = self._train_rows(part, velocity, pull, _take(shards, rows), solver, lr)
            params[rows] = part
            if moving is not None and velocity is not None:
                moving[rows] = velocity

        # by steps first, so that the rows still running are always the first ones of a chunk
        longest = shards.index.shape[1]
        batch = longest if solver.batch_size is None else min(solver.batch_size, longest)
        each_chunk(steps * (longest + 1) + shards.count, self._rows(batch), work)
        return LocalResult(params=params, slots=moving, loss=loss, steps=steps)

    def _train_rows(
        self,
        flat: Tensor,
        velocity: Tensor | None,
        anchor: Tensor | None,
        shards: Shards,
        solver: Solver,
        lr: float,
    ) -> Tensor:
        """Mean loss of the steps [R]; `flat` and `velocity` [R, P] are moved in place, steps
        descending.
        """
        plan = schedule(shards, solver)
        centre: Mapping[str, Tensor] = {}
        if solver.proximal:
            centre = unflatten(flat.clone() if anchor is None else anchor, self.layout)
        params = unflatten(flat, self.layout)
        moving = {} if velocity is None else unflatten(velocity, self.layout)
        total = torch.zeros(len(shards), device=flat.device)
        descend = vmap(grad_and_value(self._mean_loss))
        running = plan.steps > torch.arange(plan.position.shape[1], device=flat.device).unsqueeze(1)
        for step, active in enumerate(running.sum(1).tolist()):
            size = plan.size[:active, step]
            index = shards.index[:active].gather(1, plan.position[:active, step])
            masks = self.model.masks(shards.key[:active], step, index.shape[1])
            now = {name: value[:active] for name, value in params.items()}
            x = self.pool.training_inputs(index, shards.key[:active], step)
            grads, loss = descend(now, x, self.pool.y[index], size, masks)
            total[:active] += loss
            for name, value in now.items():
                gradient = grads[name]
                decay = solver.weight_decay + 2 * self.model.l2.get(name, 0.0)
                if decay:
                    gradient = gradient.add(value, alpha=decay)
                if solver.proximal:
                    gradient = gradient.add(value - centre[name][:active], alpha=solver.proximal)
                if moving:
                    gradient = moving[name][:active].mul_(solver.momentum).add_(gradient)
                value.add_(gradient, alpha=-lr)
        return total / plan.steps.clamp(min=1)

    @torch.no_grad()
    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """Mean loss of every model [K, P] on every shard, [C, K] nats per example."""
        out = torch.zeros(len(shards), len(models), dtype=torch.float64, device=models.device)
        many = vmap(self._losses, in_dims=(0, None, None))  # every model on the same examples
        width = max(1, min(shards.index.shape[1], _EXAMPLES))
        at_once = self._rows(min(_EXAMPLES, shards.index.numel()))

        def work(rows: Tensor) -> None:
            part = _take(shards, rows)
            sums = torch.zeros(len(rows), len(models), dtype=torch.float64, device=models.device)
            for index, real in _blocks(part, width):
                x, y = self.pool.inputs(index).flatten(0, 1), self.pool.y[index].flatten()
                for first in range(0, len(models), at_once):
                    group = unflatten(models[first : first + at_once], self.layout)
                    values, _ = many(group, x, y)  # [k, R * b]
                    values = values.view(-1, *real.shape).masked_fill(~real, 0)
                    sums[:, first : first + at_once] += values.sum(2, dtype=torch.float64).T
            out[rows] = sums

        each_chunk(shards.count, _EXAMPLES // width, work)
        return (out / shards.count.clamp(min=1).unsqueeze(1)).to(models.dtype)

    @torch.no_grad()
    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        out = torch.zeros(len(shards), self.num_params, device=models.device)
        derive = vmap(grad(self._masked_sum))
        width = max(1, min(shards.index.shape[1], _WIDTH))

        def work(rows: Tensor) -> None:
            part = _take(shards, rows)
            params = unflatten(models[label[rows]], self.layout)
            sums = torch.zeros(len(rows), self.num_params, device=models.device)
            for index, real in _blocks(part, width):
                grads = derive(params, self.pool.inputs(index), self.pool.y[index], real)
                sums += flatten(grads, self.layout, batch_dims=1)
            out[rows] = sums / part.count.clamp(min=1).unsqueeze(1)

        each_chunk(shards.count, self._rows(width), work)
        return out

    @torch.no_grad()
    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """Summed loss [C] float64 and correct predictions [C] int64 of models[label[i]] on shard
        i.
        """
        loss_sum = torch.zeros(len(shards), dtype=torch.float64, device=models.device)
        correct = torch.zeros(len(shards), dtype=torch.int64, device=models.device)
        each = vmap(self._losses)
        width = max(1, min(shards.index.shape[1], _WIDTH))

        def work(rows: Tensor) -> None:
            part = _take(shards, rows)
            params = unflatten(models[label[rows]], self.layout)
            sums, right = loss_sum.new_zeros(len(rows)), correct.new_zeros(len(rows))
            for index, real in _blocks(part, width):
                values, hits = each(params, self.pool.inputs(index), self.pool.y[index])
                sums += values.masked_fill(~real, 0).sum(1, dtype=torch.float64)
                right += (hits & real).sum(1)
            loss_sum[rows], correct[rows] = sums, right

        each_chunk(shards.count, self._rows(width), work)
        return loss_sum, correct

    def _losses(
        self, params: _Named, x: Tensor, y: Tensor, masks: _Masks | None = None
    ) -> tuple[Tensor, Tensor]:
        """Loss and whether the prediction is right, of one model on x [B, *shape]: [B] each."""
        logits = functional_call(self.model, params, (x, masks))
        return F.cross_entropy(logits, y, reduction="none"), logits.argmax(1) == y

    def _mean_loss(
        self, params: _Named, x: Tensor, y: Tensor, size: Tensor, masks: _Masks
    ) -> Tensor:
        """Mean loss of one model on the first `size` examples of a padded batch."""
        values, _ = self._losses(params, x, y, masks or None)
        real = torch.arange(len(y), device=y.device) < size
        return torch.where(real, values, 0).sum() / size

    def _masked_sum(self, params: _Named, x: Tensor, y: Tensor, real: Tensor) -> Tensor:
        """Summed loss of one model on the `real` [B] examples of a padded batch."""
        values, _ = self._losses(params, x, y)
        return torch.where(real, values, 0).sum()

    def _rows(self, batch: int) -> int:
        """Rows computed at once with `batch` examples each."""
        if self.max_rows is not None:
            return self.max_rows
        # parameters, start or velocity, gradient; activations and their gradients
        activations = 2 * batch * sum(math.prod(shape) for shape in self.model.shapes)
        return auto_rows(4 * (3 * self.num_params + activations), self.pool.x.device)


def _take(shards: Shards, rows: Tensor) -> Shards:
    """The shards of some rows, cut to the longest of them."""
    count = shards.count[rows]
    longest = int(count.max()) if len(rows) else 0
    work = None if shards.work is None else shards.work[rows]
    return Shards(index=shards.index[rows, :longest], count=count, key=shards.key[rows], work=work)


def _blocks(shards: Shards, width: int) -> list[tuple[Tensor, Tensor]]:
    """Index [R, b] and which examples are real [R, b], at most `width` columns at a time."""
    longest = shards.index.shape[1]
    if longest == 0:
        return []
    real = torch.arange(longest, device=shards.count.device) < shards.count.unsqueeze(1)
    return list(zip(torch.split(shards.index, width, 1), torch.split(real, width, 1), strict=True))
