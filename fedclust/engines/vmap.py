"""Many rows at once by `torch.func.vmap`: the fallback for models `fused` does not know."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_map

from fedclust.core.calls import (
    GradCall,
    LocalResult,
    LossCall,
    PredictCall,
    Shards,
    TestCall,
    TestResult,
    TrainCall,
)
from fedclust.core.pool import Pool
from fedclust.core.solver import clip, plus
from fedclust.engines.adopted import adopted
from fedclust.engines.base import Computing, by_rows, kept_losses
from fedclust.engines.chunks import auto_rows, each_chunk
from fedclust.engines.schedule import schedule
from fedclust.helpers.meter import meter
from fedclust.models.foreign import Runnable
from fedclust.models.params import flatten, unflatten
from fedclust.models.recurrent import InSteps

_EXAMPLES = 4096  # examples every model meets in one pass of the loss table
_WIDTH = 256  # examples per row in one pass of gradient and evaluation
_Named = dict[str, Tensor]
_Masks = dict[int, Tensor]


class VmapEngine(Computing[Runnable]):
    """Stacked rows by `vmap`; see `fedclust.verbs.Engine` for the verbs.

    A row without examples takes no step and returns its start, with loss and gradient 0.

    Attributes:
        max_rows: rows computed at once, None to choose by the cache or the device's memory.
    """

    name = "vmap"
    exact = False

    def __init__(self, model: nn.Module, pool: Pool, max_rows: int | None = None):
        super().__init__(adopted(model, pool), pool)
        self.max_rows = max_rows
        for part in self.model.modules():
            if isinstance(part, InSteps):
                part.in_steps = True

    def train(self, call: TrainCall) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]]."""
        shards, solver = call.shards, call.solver
        steps = shards.num_steps(solver)
        params = call.models.new_empty(len(shards), self.layout.num_params)
        width = solver.law.width(self.layout.num_params)
        kept = params.new_empty(len(params), width) if width else None
        loss, first_loss = params.new_zeros(2, len(shards))
        each = params.new_full((len(shards), call.most_steps), torch.nan)

        def train_chunk(rows: Tensor) -> None:
            part = call.take(rows, _longest(shards, rows))
            flat = call.models[part.label]
            fresh = flat.new_zeros(len(flat), width)
            slots = fresh if call.slots is None else call.slots[part.label]
            loss[rows], first_loss[rows], losses = self._train_rows(flat, slots, part)
            each[rows, : losses.shape[1]] = losses
            params[rows] = flat
            if kept is not None:
                kept[rows] = slots

        # by steps first, so that the rows still running are always the first ones of a chunk
        longest = shards.index.shape[1]
        batch = longest if solver.batch_size is None else min(solver.batch_size, longest)
        each_chunk(steps * (longest + 1) + shards.count, self._rows(batch), train_chunk)
        return LocalResult(
            params=params,
            slots=kept,
            loss=loss,
            first_loss=first_loss,
            steps=steps,
            step_loss=each if call.each_step else None,
        )

    def _train_rows(
        self, flat: Tensor, slots: Tensor, call: TrainCall
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean loss of the steps, and of the first local epoch's examples, [R] each; losses of the
        steps, [R, S], NaN past a row's last.

        `flat` [R, P] and `slots` [R, W] are moved in place; the rows' steps descend.
        """
        shards, solver = call.shards, call.solver
        plan = schedule(shards, solver)
        plan.check_batches(lone=self.model.lone)
        centre: Mapping[str, Tensor] = {}
        if solver.proximal:
            centre = unflatten(flat.clone() if call.anchor is None else call.anchor, self.layout)
        linear = {} if call.linear is None else unflatten(call.linear, self.layout)
        pull = {} if call.pull is None else unflatten(call.pull, self.layout)
        free = {} if call.frozen is None else unflatten(~call.frozen, self.layout)
        params, held = self._parted(flat)
        law = solver.law
        apart = law.decoupled or solver.clip_norm is not None
        fresh = call.slots is None
        moving = [
            unflatten(x, self.layout) for x in torch.split(slots, flat.shape[1], 1)[: law.slots]
        ]
        total, losses = flat.new_zeros(len(flat)), flat.new_zeros(plan.size.shape)
        look = _over_rows(self._mean_loss)
        lr: float | Tensor = call.lr
        proximal: float | Tensor = solver.proximal
        decay: float | Tensor = solver.weight_decay
        running = plan.steps > torch.arange(plan.position.shape[1], device=flat.device).unsqueeze(1)
        actives = running.sum(1).tolist()
        meter.steps = len(actives)
        for step, active in enumerate(actives):
            meter.step = step
            if call.rates is not None:
                rates = call.rates.take(slice(active))
                lr, proximal, decay = rates.lr, rates.proximal, rates.weight_decay
            rate = solver.step_rate(lr, step)
            t = step + 1 if fresh or not law.counts else slots[:active, -1] + (step + 1)
            size, position = plan.size[:active, step], plan.position[:active, step]
            index = shards.index[:active].gather(1, position)
            masks = self.model.masks(shards.key[:active], step, index.shape[1])
            now = {name: value[:active] for name, value in params.items()}
            x = self.pool.training_inputs(index, shards.key[:active], step)
            weight = {}
            if call.example_weight is not None:
                weight = {"example": call.example_weight[:active].gather(1, position)}
            kept = {name: value[:active] for name, value in held.items()}
            # a mean of numbers of batches is rounded where it is used, as `set_statistics` does
            whole = {name: kept[name].round() for name in self.layout.counts}
            given = x, self.pool.y[index], size, masks, weight, kept | whole
            # autograd outside of `vmap`, whose rules take their time once and not on the way back
            leaves = {name: value.detach().requires_grad_() for name, value in now.items()}
            with torch.enable_grad():
                loss, renewed = look(leaves, *given)
                found = torch.autograd.grad(
                    loss.sum(), list(leaves.values()), allow_unused=True, materialize_grads=True
                )
            grads, loss = dict(zip(leaves, found, strict=True)), loss.detach()
            for name, value in renewed.items():
                kept[name].copy_(torch.where(free[name], value, kept[name]) if free else value)
            total[:active] += loss
            losses[:active, step] = loss
            for name, value in now.items():
                shrunk = 2 * self.model.l2.get(name, 0.0) + (0.0 if apart else decay)
                gradient = plus(grads[name], value, shrunk)
                if centre:
                    gap = value - centre[name][:active]
                    gap = gap * pull[name] if pull else gap
                    gradient = plus(gradient, gap, proximal)
                if linear:
                    gradient = gradient.add(linear[name][:active])
                grads[name] = gradient * free[name] if free else gradient
            if solver.clip_norm is not None:
                clip(grads.values(), solver.clip_norm)
            for name, value in now.items():
                own = [value, *(part[name][:active] for part in moving)]
                before = [x.clone() for x in own] if free else []
                law.move(value, grads[name], own[1:], rate, decay if apart else 0.0, t)
                for x, still in zip(own, before, strict=False):
                    x.copy_(torch.where(free[name], x, still))
        if law.counts:
            slots[:, -1] += plan.steps
        mean = total / plan.steps.clamp(min=1)
        early = (losses * plan.first_epoch()).sum(1)
        return mean, early, losses.where(running.T, torch.nan)

    @torch.no_grad()
    def loss(self, call: LossCall) -> Tensor:
        """Mean loss of every model on every row [C, K], or of each example [C, n, K]; nats."""
        models, shards, each = call.models, call.shards, call.per_example
        shape = (*shards.index.shape, len(models)) if each else (len(shards), len(models))
        out = models.new_zeros(shape, dtype=torch.float32 if each else torch.float64)
        many = _over_rows(self._losses, in_dims=(0, None, None))  # every model on the same examples
        width, at_once = _width(shards, _EXAMPLES), self._rows(min(_EXAMPLES, shards.index.numel()))
        table = kept_losses(self, call, out)

        def look(rows: Tensor) -> None:
            if table.has(rows):
                return
            out[rows] = 0
            for columns, x, y, real in self._blocks(shards, rows, width):
                for first in range(0, len(models), at_once):
                    some = slice(first, first + at_once)
                    group = unflatten(models[some], self.layout)
                    values = many(group, x.flatten(0, 1), y.flatten(0, 1))  # [k, R * b]
                    values = values.view(-1, *real.shape).masked_fill(~real, 0)
                    if each:
                        out[rows, columns, some] = values.permute(1, 2, 0)
                    else:
                        out[rows, some] += values.sum(2, dtype=torch.float64).T
            table.note(rows)

        each_chunk(shards.count, _EXAMPLES // width, look)
        return out if each else (out / shards.count.clamp(min=1).unsqueeze(1)).to(models.dtype)

    @torch.no_grad()
    def grad(self, call: GradCall) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on row i, [C, P]."""
        models, label, shards = call.models, call.label, call.shards
        out = torch.zeros(len(shards), self.layout.num_params, device=models.device)
        derive, width = _over_rows(grad(self._masked_sum)), _width(shards, _WIDTH)

        def look(rows: Tensor) -> None:
            params, held = self._parted(models[label[rows]])
            sums = torch.zeros_like(out[rows])
            for _, x, y, real in self._blocks(shards, rows, width):
                grads = derive(params, x, y, real, held)
                self.layout.of_trained(sums).add_(flatten(grads, self.layout, batch_dims=1))
            out[rows] = sums / shards.count[rows].clamp(min=1).unsqueeze(1)

        each_chunk(shards.count, self._rows(width), look)
        return out

    @torch.no_grad()
    def test(self, call: TestCall) -> TestResult:
        """Test results of models[label[i]], or of a mixture, on row i."""
        models, shards = call.models, call.shards
        loss_sum = torch.zeros(len(shards), dtype=torch.float64, device=models.device)
        total = loss_sum.new_zeros(len(shards), self.pool.num_sums)
        each, width = _over_rows(self._tested), _width(shards, _WIDTH)

        def look(rows: Tensor) -> None:
            loss_sum[rows] = total[rows] = 0
            for _, x, y, real in self._blocks(shards, rows, width):
                if call.weight is None:
                    values, sums = each(unflatten(models[call.label[rows]], self.layout), x, y)
                else:
                    outputs, values = self._mixture(models, call.weight[rows], x, y)
                    sums = self.pool.task.sums(outputs, y.flatten(0, 1))
                values, sums = values.reshape(real.shape), sums.reshape(*real.shape, -1)
                loss_sum[rows] += values.masked_fill(~real, 0).sum(1, dtype=torch.float64)
                sums = sums.masked_fill(~real.unsqueeze(2), 0)
                total[rows] += sums.sum(1, dtype=torch.float64)

        each_chunk(shards.count, self._rows(width), look)
        return TestResult(loss_sum=loss_sum, sums=total)

    @torch.no_grad()
    def predict(self, call: PredictCall) -> Tensor:
        """Outputs of models[label[i]], or of a mixture, for the examples of row i, [C, n, Y]."""
        models, shards = call.models, call.shards
        out = models.new_zeros(*shards.index.shape, self.pool.width)
        each, width = _over_rows(partial(functional_call, self.model)), _width(shards, _WIDTH)

        def look(rows: Tensor) -> None:
            for columns, x, y, real in self._blocks(shards, rows, width):
                if call.weight is None:
                    outputs = each(unflatten(models[call.label[rows]], self.layout), x)
                else:
                    outputs, _ = self._mixture(models, call.weight[rows], x, y)
                outputs = outputs.view(*real.shape, -1).masked_fill(~real.unsqueeze(2), 0)
                out[rows, columns] = outputs.to(out.dtype)

        each_chunk(shards.count, self._rows(width), look)
        return out

    answers: ClassVar = {**by_rows(train, loss, grad, test), PredictCall: predict}

    def _mixture(
        self, models: Tensor, weight: Tensor, x: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs [R * b, Y] by which one model would say what mixtures say, and losses [R * b].

        Args:
            models: [K, P].
            weight: [R, K] shares of the models.
            x: [R, b, *shape] inputs.
            y: [R, b] or [R, b, T] targets.
        """
        task, mixed, size = self.pool.task, None, y.shape[:2]
        for share, model in zip(weight.T, models, strict=True):
            params = unflatten(model, self.layout)
            outputs = functional_call(self.model, params, (x.flatten(0, 1),))
            mixed = task.mix(mixed, outputs.view(*size, -1), share[:, None, None])
        assert mixed is not None
        return task.settle(mixed.flatten(0, 1), y.flatten(0, 1))

    def _tested(self, params: _Named, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses [B] and what a test adds up [B, S], of one model on x [B, *shape]."""
        outputs = functional_call(self.model, params, (x,))
        return self.pool.task.loss(outputs, y), self.pool.task.sums(outputs, y)

    def _parted(self, flat: Tensor) -> tuple[_Named, _Named]:
        """Trained parameters and buffers of rows [R, P] as views."""
        params = unflatten(flat, self.layout)
        return params, {name: params.pop(name) for name in self.layout.buffers}

    def _losses(self, params: _Named, x: Tensor, y: Tensor) -> Tensor:
        """Losses [B] of one model on x [B, *shape]."""
        return self.pool.task.loss(functional_call(self.model, params, (x,)), y)

    def _mean_loss(
        self,
        params: _Named,
        x: Tensor,
        y: Tensor,
        size: Tensor,
        masks: _Masks,
        weight: _Named,
        held: _Named,
    ) -> tuple[Tensor, _Named]:
        """Mean loss, perhaps weighted, of a model on `size` examples of a batch; new buffers."""
        real = torch.arange(len(y), device=y.device) < size
        if held:
            outputs = functional_call(self.model, {**params, **held}, (x, masks, real))
        else:
            outputs = functional_call(self.model, params, (x, masks))
        values = self.pool.task.loss(outputs, y)
        if weight:
            values = values * weight["example"]
        return torch.where(real, values, 0).sum() / size, self.model.take_renewed()

    def _masked_sum(
        self, params: _Named, x: Tensor, y: Tensor, real: Tensor, held: _Named
    ) -> Tensor:
        """Summed loss of one model on the `real` [B] examples of a padded batch."""
        values = self._losses({**params, **held}, x, y)
        return torch.where(real, values, 0).sum()

    def _blocks(
        self, shards: Shards, rows: Tensor, width: int
    ) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """Blocks of columns: which, inputs [R, b, *shape], targets [R, b(, T)], real [R, b]."""
        longest, device = _longest(shards, rows), shards.count.device
        part = shards.take(rows, longest)
        for first in range(0, longest, width):
            columns = slice(first, min(first + width, longest))
            index = part.index[:, columns]
            position = torch.arange(columns.start, columns.stop, device=device)
            real = position < part.count.unsqueeze(1)
            yield columns, self.pool.inputs(index), self.pool.y[index], real

    def _rows(self, batch: int) -> int:
        """Rows computed at once with `batch` examples each."""
        if self.max_rows is not None:
            return self.max_rows
        # parameters, start or velocity, gradient; activations and their gradients
        activations = 2 * batch * sum(math.prod(shape) for shape in self.model.shapes)
        return auto_rows(4 * (3 * self.layout.num_params + activations), self.pool.x.device)


def _over_rows(function: Callable[..., Any], in_dims: Any = 0) -> Callable[..., Any]:
    """`vmap` of a function of one model's parameters and further arguments.

    A row by itself, as large models are computed, does without: the rules by which `vmap` treats
    normalisation and convolutions take up to twice the time of the operations.
    """
    many = vmap(function, in_dims=in_dims)
    # which nobody can change: attention is one of them
    warnings.filterwarnings("ignore", "There is a performance drop because we have not yet")

    def of_rows(params: _Named, *given: Any) -> Any:
        if len(next(iter(params.values()))) != 1:
            return many(params, *given)
        dims = in_dims if isinstance(in_dims, tuple) else [0] * (1 + len(given))
        one = [
            value if dim is None else tree_map(itemgetter(0), value)
            for value, dim in zip((params, *given), dims, strict=True)
        ]
        return tree_map(lambda value: value.unsqueeze(0), function(*one))

    return of_rows


def _longest(shards: Shards, rows: Tensor) -> int:
    """Examples of the largest of some rows."""
    return int(shards.count[rows].max()) if len(rows) else 0


def _width(shards: Shards, most: int) -> int:
    """Examples of a row that are looked at together, at most `most`."""
    return max(1, min(shards.index.shape[1], most))
