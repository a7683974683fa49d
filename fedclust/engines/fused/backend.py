"""The fused engine: stacked rows, hand-written backward, updates fused into the products."""

from __future__ import annotations

import torch
from torch import Tensor

from fedclust.engines.chunks import auto_rows, each_chunk
from fedclust.engines.fused.network import Network, Stack, obstacle
from fedclust.engines.fused.scoring import Grouped, load_models, loss_block, owners, score_chunk
from fedclust.engines.fused.training import Batches, gradient_chunk, load, rule_of, train_chunk
from fedclust.engines.fused.weights import Accumulate, Weight
from fedclust.engines.schedule import schedule
from fedclust.errors import require
from fedclust.models.sequence import Model
from fedclust.rng import Stream
from fedclust.solver import Solver
from fedclust.types import LocalResult, Pool, Shards

_BLOCK_CPU = 8 << 20  # bytes of the widest activation of one block: small enough for the cache
_BLOCK_CUDA = 1 << 30


class FusedBackend:
    """The fastest engine, for models that are a sequence of known layers; see `fedclust.types.Backend`.

    Args:
        model: the architecture.
        pool: the examples, on the device to compute on.
        max_rows: rows computed at once, None to choose by cache or memory.

    Attributes:
        padding: fraction of the examples computed in the last `train` call that were padding.

    Raises:
        ConfigError: if the model has a layer that this engine does not know.
    """

    name = "fused"

    def __init__(self, model: Model, pool: Pool, max_rows: int | None = None) -> None:
        require(not obstacle(model), "engine", "fused", f"{obstacle(model)}; use engine=auto")
        require(max_rows is None or max_rows >= 1, "max_rows", max_rows, "at least 1, or null to choose")
        self.model, self.pool = model, pool
        self.network = Network.of(model)
        self.num_params = self.network.num_params
        self.padding = 0.0
        self._max_rows = max_rows

    @staticmethod
    def obstacle(model: Model) -> str:
        """Why this engine cannot run a model, in words; empty where it can."""
        return obstacle(model)

    def init(self, stream: Stream) -> Tensor:
        """Freshly initialised parameters, [P]."""
        return self.model.draw(stream.torch()).to(self.pool.x.device)

    @torch.no_grad()
    def train(
        self,
        models: Tensor,
        label: Tensor,
        shards: Shards,
        solver: Solver,
        lr: float,
        slots: Tensor | None = None,
    ) -> LocalResult:
        """Local training of C rows; row i starts at models[label[i]] and, with momentum, slots[label[i]]."""
        result = LocalResult(
            params=models.new_empty(len(shards), self.num_params),
            slots=models.new_empty(len(shards), self.num_params) if solver.momentum else None,
            loss=models.new_zeros(len(shards)),
            steps=torch.zeros_like(shards.count),
        )
        rule = rule_of(solver, lr)
        computed = torch.zeros(2, dtype=torch.int64)  # all examples, real examples

        def work(rows: Tensor) -> None:
            here = _take(shards, rows)
            plan = schedule(here, solver)
            weights = load(self.network, models, label[rows], solver, slots)
            batches = Batches.of(self.pool, here, plan)
            result.loss[rows] = train_chunk(Stack(self.network, weights, here.key, rule), batches)
            result.steps[rows] = plan.steps
            self._store(weights, rows, result.params, result.slots)
            computed.add_(torch.tensor([batches.computed, int(plan.size.sum())]))

        batch = solver.batch_size or shards.index.shape[1]
        copies = 1 + bool(solver.momentum) + bool(solver.proximal)
        each_chunk(shards.count, self._rows(len(shards), copies, batch, shards.index.shape[1]), work)
        self.padding = 1 - float(computed[1] / computed[0].clamp(min=1)) if computed[0] else 0.0
        return result

    @torch.no_grad()
    def loss(self, models: Tensor, shards: Shards) -> Tensor:
        """Mean loss of every model [K, P] on every shard, [C, K] nats per example."""
        owner, index = owners(shards)
        sums = torch.zeros(len(models), len(shards), dtype=torch.float64, device=models.device)

        def work(which: Tensor) -> None:
            part = sums.new_zeros(len(which), len(shards))
            stack = load_models(self.network, models, which)
            loss_block(stack, self.pool, owner, index, self._block(len(which)), part)
            sums[which] = part

        like = torch.zeros(len(models), dtype=torch.int64, device=models.device)
        each_chunk(like, self._rows(len(models), 1, 0, 0), work)
        return (sums.T / shards.count.clamp(min=1).unsqueeze(1)).to(torch.float32)

    @torch.no_grad()
    def grad(self, models: Tensor, label: Tensor, shards: Shards) -> Tensor:
        """Full-batch gradient of the mean loss of models[label[i]] on shard i, [C, P]."""
        gradient = models.new_empty(len(shards), self.num_params)

        def work(rows: Tensor) -> None:
            here = _take(shards, rows)
            weights = {}
            for name, field in self.network.fields.items():
                value = field.load(models, label[rows])
                weights[name] = Weight(value=value, slot=torch.zeros_like(value))
            stack = Stack(self.network, weights, here.key, Accumulate())
            gradient_chunk(stack, self.pool, here, self._block(len(rows)))
            self._store(weights, rows, None, gradient)

        longest = shards.index.shape[1]
        each_chunk(shards.count, self._rows(len(shards), 2, min(longest, 256), 0), work)
        return gradient

    @torch.no_grad()
    def evaluate(self, models: Tensor, label: Tensor, shards: Shards) -> tuple[Tensor, Tensor]:
        """Summed loss [C] float64 and correct predictions [C] int64 of models[label[i]] on shard i."""
        grouped = Grouped.of(label, shards)
        loss = torch.zeros(len(grouped.index), dtype=torch.float64, device=models.device)
        hit = torch.zeros_like(grouped.index)

        def work(rows: Tensor) -> None:
            stack = load_models(self.network, models, grouped.used[rows])
            score_chunk(stack, self.pool, grouped, rows, self._block(1), (loss, hit))

        each_chunk(grouped.count, self._rows(len(grouped.used), 1, 0, 0), work)
        return (
            torch.zeros(len(shards), dtype=torch.float64, device=models.device).index_add_(
                0, grouped.owner, loss
            ),
            torch.zeros_like(shards.count).index_add_(0, grouped.owner, hit),
        )

    def _store(
        self, weights: dict[str, Weight], rows: Tensor, params: Tensor | None, slots: Tensor | None
    ) -> None:
        """Write stacks back to the rows of flat results."""
        for name, field in self.network.fields.items():
            if params is not None:
                field.store(weights[name].value, params, rows)
            if slots is not None:
                slot = weights[name].slot
                assert slot is not None
                field.store(slot, slots, rows)

    def _rows(self, rows: int, copies: int, batch: int, examples: int) -> int:
        """Rows of one chunk, so that all chunks are about equally large.

        Args:
            rows: rows of the call.
            copies: parameter-sized tensors of a row.
            batch: examples of a row at once.
            examples: examples of a row kept as float32.
        """
        most = self._max_rows
        if most is None:
            floats = copies * self.num_params + 2 * batch * self.network.activations
            floats += examples * self.pool.x[0].numel()
            most = auto_rows(4 * floats, self.pool.x.device)
        chunks = -(-rows // most)
        return max(1, -(-rows // max(chunks, 1)))

    def _block(self, models: int) -> int:
        """Examples per model that `models` models look at together."""
        size = _BLOCK_CUDA if self.pool.x.device.type == "cuda" else _BLOCK_CPU
        return max(32, size // (4 * self.network.widest * models))


def _take(shards: Shards, rows: Tensor) -> Shards:
    """The shards of some rows, no wider than the longest of them."""
    count = shards.count[rows]
    longest = int(count.max()) if len(count) else 0
    return Shards(index=shards.index[rows, :longest], count=count, key=shards.key[rows])
