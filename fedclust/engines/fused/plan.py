"""What becomes of the rows of a call of local training: which are trained by one rule, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from fedclust.core.calls import Shards, TrainCall
from fedclust.core.pool import Pool
from fedclust.engines.fused.native import perceptron, softmax
from fedclust.engines.fused.network import Network, Pulls
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Descent, Gathered, HeavyBall, TrainingRule
from fedclust.engines.fused.span import pays
from fedclust.engines.fused.weights import Weight

# network, weights, rule, pool, call, local steps [R], in the span [R] -> losses, as `chunk.train`
Compiled = Callable[
    [Network, Mapping[str, Weight], TrainingRule, Pool, TrainCall, Tensor, Tensor], Tensor
]

# gradients are multiplied by the rate in float32, and losses divided by it again: a smaller rate
# could become 0 there, and moves no weight anyway
_LEAST_RATE = 1e-20


class Path(Enum):
    """How rows are trained."""

    COMPILED = "all steps of a row in compiled code, in the span of its examples or not"
    SPAN = "step by step, the first layer in the span of the row's examples"
    LAYERS = "step by step, every layer as it stands"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Rows that one rule moves on one path.

    Attributes:
        call: of all C rows, with the numbers of the rule.
        rule: what a step makes of a gradient.
        frozen: names of the parameters that stay.
        pulls: factors of the proximal weight of the parameters that have one.
        rows: [R] int64, the host's, which of the C.
        compiled: the code of `Path.COMPILED`.
        in_span: [C] bool, the host's, whose first layer is trained in the span of their examples.
    """

    call: TrainCall
    rule: TrainingRule
    frozen: frozenset[str]
    pulls: Pulls
    rows: Tensor
    path: Path
    compiled: Compiled | None
    in_span: Tensor


def plans(
    call: TrainCall,
    known: Shards,
    steps: Tensor,
    network: Network,
    pool: Pool,
    products: Products,
) -> Iterator[Plan]:
    """The plans of a call, every row in one of them.

    Args:
        known: its shards in the host's memory.
        steps: [C] int64, the host's, local steps of every row.
    """
    frozen, pulls = network.covered(call.frozen), network.factors(call.pull)
    # compiled code keeps neither the loss of every step nor leaves batches out
    plain = call.solver.plain
    asked = call.each_step or call.solver.drop_last
    compiled = None if asked else _compiled(network, pool, frozen)
    layer, spanned = network.first_layer, torch.zeros_like(known.count, dtype=torch.bool)
    moves = f"{network.first_dense}.weight" not in frozen
    if plain and layer is not None and moves and pool.view is None:
        sides = layer.in_features, layer.out_features
        spanned = pays(known.count, steps, call.solver.batch_size, *sides, compiled is not None)
    everyone = torch.ones_like(spanned)
    ways = {Path.SPAN: spanned, Path.LAYERS: ~spanned}
    penalised = any(field.l2 for field in network.fields.values())
    for part, among in _by_rule(call, penalised=penalised):
        for path, some in ({Path.COMPILED: everyone} if compiled else ways).items():
            rows = (among & some).nonzero().squeeze(1)
            if len(rows):
                yield Plan(
                    call=part,
                    rule=_rule_of(part, products),
                    frozen=frozen,
                    pulls=pulls,
                    rows=rows,
                    path=path,
                    compiled=compiled,
                    in_span=spanned,
                )


def _compiled(network: Network, pool: Pool, frozen: frozenset[str]) -> Compiled | None:
    """Compiled code that trains such models in one call; None for none."""
    if softmax.trains(network, pool, frozen):
        return softmax.train_softmax
    if perceptron.trains(network, pool, frozen):
        return perceptron.train_perceptron
    return None


def _by_rule(call: TrainCall, *, penalised: bool) -> list[tuple[TrainCall, Tensor]]:
    """The call once for every rule that its rows have, each with the rows [C] bool it is for.

    Where nothing but gradients moves them, rows with a learning rate of their own share the rule
    with rate 1, for gradients times their own rate: see `Batches.of`, `Chunk.load` and `train`.

    Args:
        call: with all rows.
        penalised: whether the model has an L2 penalty of its own.
    """
    rows = torch.ones(len(call.label), dtype=torch.bool)
    if call.rates is None:
        return [(call, rows)]
    rates = call.rates
    numbers = torch.stack([rates.lr, rates.proximal, rates.weight_decay], 1).cpu()
    if not (penalised or not call.solver.linear or numbers[:, 1:].any()):
        own = replace(rates, lr=rates.lr.clamp(min=_LEAST_RATE))
        solver = replace(call.solver, weight_decay=0.0)
        return [(replace(call, lr=1.0, solver=solver, rates=own), rows)]
    rules, which = torch.unique(numbers, dim=0, return_inverse=True)
    parts = []
    for number, (lr, proximal, decay) in enumerate(rules.tolist()):
        solver = replace(call.solver, proximal=proximal, weight_decay=decay)
        parts.append((replace(call, lr=lr, solver=solver, rates=None), which == number))
    return parts


def _rule_of(call: TrainCall, products: Products) -> TrainingRule:
    """What a call does with a gradient."""
    solver, momentum = call.solver, call.solver.law.keep
    pull = solver.proximal or float(call.linear is not None)
    terms: dict[str, Any] = {"lr": call.lr, "pull": pull, "products": products}
    if not solver.plain:
        return Gathered(solver=solver, **terms)
    terms |= {"proximal": solver.proximal, "weight_decay": solver.weight_decay}
    return HeavyBall(momentum=momentum, **terms) if momentum else Descent(**terms)
