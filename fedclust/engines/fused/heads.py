"""What stands behind the layers: losses of what models give, and the gradients they go back with.

What a head `looks` at is its own: log-probabilities of classes, or outputs as they are. `label` is
[R, B, 1] int64 classes, or targets [R, B, T].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from fedclust.core.task import Task
from fedclust.engines.fused.layers import Frame


def head_of(task: Task) -> Head:
    """The head of a task."""
    return Softmax(task) if task.softmax else Head(task)


@dataclass(frozen=True)
class Head:
    """Losses, sums and gradients of any task, by its own functions of outputs [R * B, Y]."""

    task: Task

    def look(self, frame: Frame, x: Tensor) -> Tensor:
        """What a frame's models give for x [R, B, *shape], in shared memory: outputs [R, B, Y]."""
        return frame.chain.forward(x)

    def losses(self, given: Tensor, label: Tensor, out: Tensor | None = None) -> Tensor:
        """Losses of what was given with their signs changed, [R, B], in `out` if that is given."""
        losses = self.task.loss(given.flatten(0, 1), _flat(label)).view(given.shape[:2])
        return torch.neg(losses, out=out)

    def back(self, frame: Frame, given: Tensor, label: Tensor, share: Tensor) -> None:
        """Carry the gradient of losses, times shares [R, B, 1], through what gave last."""
        slope = self.task.slope(given.flatten(0, 1), _flat(label)).view_as(given)
        torch.mul(slope, share, out=frame.delta)
        frame.chain.backward(frame.delta)

    def sums(self, given: Tensor, label: Tensor) -> Tensor:
        """What a test adds up of every example, [R, B, S]."""
        return self.task.sums(given.flatten(0, 1), _flat(label)).view(*given.shape[:2], -1)

    def nobody(self, examples: int, outputs: int, like: Tensor) -> Tensor:
        """A mixture of no models yet, of T examples: [T, Y], in which a model has no share."""
        return self.task.mix(None, like.new_zeros(examples, outputs), like.new_zeros(1, 1))

    def mix(self, given: Tensor, share: Tensor, mixed: Tensor, part: slice) -> None:
        """Add R models to a part of a mixture, by their shares [b, R] of every example."""
        for outputs, own in zip(given, share.T, strict=True):
            mixed[part] = self.task.mix(mixed[part], outputs, own.unsqueeze(1))

    def settle(self, mixed: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Losses [T] and sums [T, S] of a mixture, for the pool's targets y of T examples."""
        outputs, losses = self.task.settle(mixed, y)
        return losses, self.task.sums(outputs, y)

    def outputs(self, given: Tensor) -> Tensor:
        """Outputs [R, B, Y] by which a model gives this."""
        return given

    def settled(self, mixed: Tensor, y: Tensor) -> Tensor:
        """Outputs [T, Y] by which one model would say what a mixture says; y as of `settle`."""
        return self.task.settle(mixed, y)[0]


class Softmax(Head):
    """The cross entropy of a softmax, by log-probabilities [Y, R, B], as in `Frame`."""

    def look(self, frame: Frame, x: Tensor) -> Tensor:
        frame.change.copy_(frame.chain.forward(x).permute(2, 0, 1))
        return torch.log_softmax(frame.change, 0, out=frame.logp)

    def losses(self, given: Tensor, label: Tensor, out: Tensor | None = None) -> Tensor:
        room = None if out is None else out.unsqueeze(0)
        return torch.gather(given, 0, label.permute(2, 0, 1), out=room).squeeze(0)

    def back(self, frame: Frame, given: Tensor, label: Tensor, share: Tensor) -> None:
        """By the logits the gradient is (softmax - one hot) * share, so 0 in padding."""
        torch.exp(given, out=frame.change).scatter_add_(0, label.permute(2, 0, 1), frame.minus_one)
        torch.mul(frame.change.permute(1, 2, 0), share, out=frame.delta)
        frame.chain.backward(frame.delta)

    def sums(self, given: Tensor, label: Tensor) -> Tensor:
        """[R, B, 1], 1 where the label is the first of the largest; faster than an argmax."""
        own, right = given.gather(0, label.permute(2, 0, 1)), label.permute(2, 0, 1)
        classes = torch.arange(len(given), device=given.device).view(-1, 1, 1)
        beaten = (given > own) | ((given == own) & (classes < right))
        return (~beaten.any(0)).unsqueeze(2)

    def nobody(self, examples: int, outputs: int, like: Tensor) -> Tensor:
        """In logs, [Y, T]."""
        return like.new_full((outputs, examples), -inf)

    def mix(self, given: Tensor, share: Tensor, mixed: Tensor, part: slice) -> None:
        """Add to the mixture; what was given is changed."""
        own = given.add_(share.log().T).logsumexp(1)
        mixed[:, part] = mixed[:, part].logaddexp(own)

    def settle(self, mixed: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        losses = mixed.gather(0, y.unsqueeze(0)).squeeze(0).neg()
        return losses, (mixed.argmax(0) == y).unsqueeze(1)

    def outputs(self, given: Tensor) -> Tensor:
        """Log-probabilities, which are logits as they are."""
        return given.permute(1, 2, 0)

    def settled(self, mixed: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return mixed.T


def _flat(label: Tensor) -> Tensor:
    """Targets [R * B, T], or classes [R * B]."""
    return label.flatten() if label.dtype == torch.int64 else label.flatten(0, 1)
