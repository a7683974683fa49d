"""The readable reference: one client at a time, autograd, `torch.optim`; same bits always."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

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
from fedclust.engines.adopted import adopted
from fedclust.engines.base import Computing, by_rows, kept_losses
from fedclust.engines.located import at_rows
from fedclust.engines.schedule import Schedule, schedule
from fedclust.helpers.meter import meter
from fedclust.helpers.rng import fold
from fedclust.models.dropout import PURPOSE
from fedclust.models.exchanged import seeded
from fedclust.models.foreign import Runnable
from fedclust.models.params import set_statistics, statistics, trained, unflatten

_BLOCK = 1000  # examples of one forward pass outside training, which bounds its memory


class LoopEngine(Computing[Runnable]):
    """Plain PyTorch, row by row; see `fedclust.verbs.Engine` for the verbs.

    A row without examples takes no step and returns its start, with loss and gradient 0.
    """

    name = "loop"
    exact = True

    def __init__(self, model: nn.Module, pool: Pool):
        super().__init__(adopted(model, pool), pool)
        self.meter = meter
        # what computes: one for all rows, since making it takes as long as a few steps
        self._at_work = copy.deepcopy(self.model)

    def train(self, call: TrainCall) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]]."""
        shards, solver, label = call.shards, call.solver, call.label
        plan = schedule(shards, solver)
        plan.check_batches(lone=self.model.lone)
        first_epoch = plan.first_epoch()
        params = call.models[label]
        loss, first_loss = params.new_zeros(2, len(shards))
        each = params.new_full((len(shards), call.most_steps), torch.nan)
        kept = None
        if width := solver.law.width(params.shape[1]):
            fresh = params.new_zeros(len(params), width)
            kept = fresh if call.slots is None else call.slots[label]
        for row in range(len(shards)):
            if plan.steps[row] > 0:
                slots = None if kept is None else kept[row]
                pull = params[row].clone() if call.anchor is None else call.anchor[row]
                with at_rows((row,)):
                    losses = self._train_row(params[row], slots, pull, row, call, plan)
                loss[row] = sum(losses) / plan.steps[row]
                first_loss[row] = (losses * first_epoch[row, : len(losses)]).sum()
                each[row, : len(losses)] = losses
            self.meter.add(1)
        return LocalResult(
            params=params,
            slots=kept,
            loss=loss,
            first_loss=first_loss,
            steps=plan.steps,
            step_loss=each if call.each_step else None,
        )

    def _train_row(
        self,
        params: Tensor,
        slots: Tensor | None,
        anchor: Tensor,
        row: int,
        call: TrainCall,
        plan: Schedule,
    ) -> Tensor:
        """Loss of every step of one row [S]; `params` [P] and `slots` [W] are moved in place."""
        model, shards = self._load(params), call.shards
        solver, lr = call.solver_of(row)
        centre = unflatten(anchor, self.layout) if solver.proximal else {}
        linear = {} if call.linear is None else unflatten(call.linear[row], self.layout)
        pull = {} if call.pull is None else unflatten(call.pull, self.layout)
        frozen = {} if call.frozen is None else unflatten(call.frozen, self.layout)
        moved = unflatten(params, self.layout)
        still = {} if call.frozen is None else unflatten(params.clone(), self.layout)
        # what a step needs is looked up once, or small models would wait for it
        parameters = trained(model)
        optimizer = solver.optimizer([value for _, value in parameters], lr)
        kept, law = {}, solver.law
        if slots is not None:
            parts = zip(solver.kept_as, torch.split(slots, len(params)), strict=False)
            kept = {slot: unflatten(part, self.layout) for slot, part in parts}
            if call.slots is not None and not (law.counts and slots[-1] == 0):
                for name, value in parameters:
                    state = {slot: part[name].clone() for slot, part in kept.items()}
                    optimizer.state[value].update(state, step=slots[-1].clone())
        key, position = shards.key[row : row + 1], plan.position[row]
        examples = shards.index[row, position]  # [S, B]
        sizes = plan.size[row, : int(plan.steps[row])].tolist()
        losses = params.new_zeros(len(sizes))
        self.meter.steps = len(sizes)
        for step, size in enumerate(sizes):
            self.meter.step = step
            index = examples[step, :size]
            masks = model.masks(key, step, size)
            x = self.pool.training_inputs(index.unsqueeze(0), key, step).squeeze(0)
            own = {layer: mask[0] for layer, mask in masks.items()}
            forward = partial(model, x, own)
            if model.draws:
                seed = int(fold(fold(key[0], PURPOSE), step))
                logits = seeded(seed, forward, x.device)
            else:
                logits = forward()
            y = self.pool.y[index]
            if call.example_weight is None:
                loss = self.pool.task.loss(logits, y, "mean")
            else:
                weight = call.example_weight[row, position[step, :size]]
                loss = (weight * self.pool.task.loss(logits, y)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for name, value in parameters:
                if value.grad is None:  # the outputs do not depend on it
                    value.grad = torch.zeros_like(value)
                if solver.proximal:
                    gap = value.detach() - centre[name]
                    gap = gap * pull[name] if pull else gap
                    value.grad.add_(gap, alpha=solver.proximal)
                if linear:
                    value.grad.add_(linear[name])
                if name in model.l2:
                    value.grad.add_(value.detach(), alpha=2 * model.l2[name])
            if solver.clip_norm is not None:
                for name, value in parameters if frozen else ():
                    assert value.grad is not None
                    value.grad.masked_fill_(frozen[name], 0)
                own_values = [value for _, value in parameters]
                torch.nn.utils.clip_grad_norm_(own_values, solver.clip_norm)
            optimizer.param_groups[0]["lr"] = solver.step_rate(lr, step)
            optimizer.step()
            losses[step] = loss.detach()
            with torch.no_grad():
                for name, value in parameters if frozen else ():
                    value.copy_(torch.where(frozen[name], still[name], value))
        for name, buffer in statistics(model):
            moved[name].copy_(torch.where(frozen[name], still[name], buffer) if frozen else buffer)
        for name, value in parameters:
            moved[name].copy_(value.detach())
            for slot, part in kept.items():
                now = optimizer.state[value][slot]
                if frozen:
                    now = torch.where(frozen[name], part[name], now)
                part[name].copy_(now)
        if slots is not None and law.counts:
            slots[-1] += len(losses)
        return losses

    @torch.no_grad()
    def loss(self, call: LossCall) -> Tensor:
        """Mean loss of every model on every row [C, K], or of each example [C, n, K]; nats."""
        models, shards, loss = call.models, call.shards, self.pool.task.loss
        shape = shards.index.shape if call.per_example else shards.count.shape
        by_model = torch.zeros(len(models), *shape, device=models.device)
        table, out = kept_losses(self, call, by_model), by_model.movedim(0, -1)
        self.meter.begin(self.meter.doing, len(models), "models")
        for k in range(len(models)):
            own = torch.tensor([k])
            if table.has(own):
                continue
            model = self._load(models[k])
            for row in range(len(shards)):
                first = 0
                for x, y in self._blocks(shards, row):
                    if call.per_example:
                        out[row, first : first + len(y), k] = loss(model(x), y)
                        first += len(y)
                    else:
                        out[row, k] += loss(model(x), y, "sum")
            table.note(own)
            self.meter.add(1)
        mean = out if call.per_example else out / shards.count.clamp(min=1).unsqueeze(1)
        return mean.contiguous()

    def grad(self, call: GradCall) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on row i, [C, P]."""
        shards = call.shards
        out = torch.zeros(len(shards), self.layout.num_params, device=call.models.device)
        for row in range(len(shards)):
            model = self._load(call.models[call.label[row]])
            parameters = [value for _, value in trained(model)]
            for x, y in self._blocks(shards, row):
                loss = self.pool.task.loss(model(x), y, "sum")
                parts = torch.autograd.grad(
                    loss, parameters, allow_unused=True, materialize_grads=True
                )
                gradient = torch.cat([part.flatten() for part in parts])
                out[row, : len(gradient)] += gradient
            self.meter.add(1)
        return out / shards.count.clamp(min=1).unsqueeze(1)

    @torch.no_grad()
    def test(self, call: TestCall) -> TestResult:
        """Test results of models[label[i]], or of a mixture, on row i."""
        shards, device = call.shards, call.models.device
        loss_sum = torch.zeros(len(shards), dtype=torch.float64, device=device)
        task = self.pool.task
        sums = loss_sum.new_zeros(len(shards), self.pool.num_sums)
        for row in range(len(shards)):
            for outputs, losses, y in self._looked(call, row):
                loss_sum[row] += losses.sum(dtype=torch.float64)
                sums[row] += task.sums(outputs, y).sum(0, dtype=torch.float64)
            self.meter.add(1)
        return TestResult(loss_sum=loss_sum, sums=sums)

    @torch.no_grad()
    def predict(self, call: PredictCall) -> Tensor:
        """Outputs of models[label[i]], or of a mixture, for the examples of row i, [C, n, Y]."""
        shards = call.shards
        out = call.models.new_zeros(*shards.index.shape, self.pool.width)
        for row in range(len(shards)):
            outputs_of = [outputs for outputs, _, _ in self._looked(call, row)]
            if outputs_of:
                out[row, : int(shards.count[row])] = torch.cat(outputs_of)
            self.meter.add(1)
        return out

    answers: ClassVar = {**by_rows(train, loss, grad, test), PredictCall: predict}

    def _looked(
        self, call: TestCall | PredictCall, row: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Outputs [b, Y], losses [b] and targets of one row's examples, block after block."""
        task = self.pool.task
        for x, y in self._blocks(call.shards, row):
            if call.weight is None:
                outputs = self._load(call.models[call.label[row]])(x)
                losses = task.loss(outputs, y)
            else:
                mixed = None
                for share, model in zip(call.weight[row], call.models, strict=True):
                    mixed = task.mix(mixed, self._load(model)(x), share)
                assert mixed is not None
                outputs, losses = task.settle(mixed, y)
            yield outputs, losses, y

    def _load(self, params: Tensor) -> Runnable:
        """The model that computes, with the parameters `params` [P] in its own memory."""
        model = self._at_work
        values = unflatten(params, self.layout)
        for name, value in trained(model):
            value.data = values[name].clone()
        set_statistics(model, values)
        return model

    def _blocks(self, shards: Shards, row: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets of one row's examples, at most `_BLOCK` at a time."""
        count = int(shards.count[row])
        for first in range(0, count, _BLOCK):
            index = shards.index[row, first : min(first + _BLOCK, count)]
            yield self.pool.inputs(index), self.pool.y[index]
