"""Where the first dense layer is trained in the span of its clients' examples, and how it decays.

That both ways give the same is tested with jobs drawn at random: test_regression.py has those of
softmax regression, test_perceptron.py those of several layers.
"""

from __future__ import annotations

import pytest
import torch
from engine_toys import shipped
from torch import Tensor, nn

from fedclust.core.calls import LocalResult
from fedclust.engines.fused.network import Network
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Descent, HeavyBall
from fedclust.engines.fused.span import no_gradient, pays
from fedclust.models.sequence import Model


def everywhere(count: Tensor, *_: object) -> Tensor:
    return torch.ones_like(count, dtype=torch.bool)


def nowhere(count: Tensor, *_: object) -> Tensor:
    return torch.zeros_like(count, dtype=torch.bool)


def assert_same(a: LocalResult, b: LocalResult) -> None:
    torch.testing.assert_close(a.params, b.params, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(a.loss, b.loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(a.first_loss, b.first_loss, rtol=1e-5, atol=1e-5)
    assert torch.equal(a.steps, b.steps)
    assert (a.slots is None) == (b.slots is None)
    if a.slots is not None and b.slots is not None:
        torch.testing.assert_close(a.slots, b.slots, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("count", "steps", "batch", "expected"),
    [
        (100, 10, None, True),  # full batches met ten times
        (100, 1, None, False),  # met once, the products alone cost more
        (200, 100, 20, True),
        (2000, 1000, 20, False),  # more examples than features
        (0, 0, 20, False),
    ],
)
def test_where_it_pays(count: int, steps: int, batch: int | None, expected: bool) -> None:
    """784-200-10: n (n i + 2 i o) + m n o against 2 m i o multiplications for m examples met."""
    several = torch.tensor([count, 7, 300]), torch.tensor([steps, 3, 0])
    assert bool(pays(*several, batch, 784, 200)[0]) is expected


def test_layers_that_do_not_see_the_inputs_are_left_alone() -> None:
    def network(*layers: nn.Module, shapes: list[tuple[int, ...]]) -> Network:
        return Network.of(Model(layers, shapes, [], {}))

    dense = network(nn.Flatten(), nn.Linear(4, 2), shapes=[(1, 2, 2), (4,), (2,)])
    assert dense.first_dense == 1
    dropped = network(
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 2), shapes=[(1, 2, 2), (4,), (4,), (2,)]
    )
    assert dropped.first_dense is None
    assert Network.of(shipped("flex_mnist_cnn", (1, 28, 28))).first_dense is None


def test_without_gradients_weights_decay_to_the_anchor() -> None:
    """w - a shrinks by 1 - lr (c + mu) a step when c pulls to 0 and mu to a."""
    rule = Descent(lr=0.1, proximal=0.5, weight_decay=0.0, pull=0.5, products=Products())
    factor = 0.95 ** torch.arange(4, dtype=torch.float64)
    expected = torch.stack([factor, 1 - factor, 0 * factor], 1)
    torch.testing.assert_close(
        no_gradient(rule, 0.5, anchored=True, slotted=False, steps=3).value, expected
    )


def test_without_gradients_momentum_coasts() -> None:
    """w_t = w_0 - lr (b + ... + b^t) u_0."""
    terms = {"proximal": 0.0, "weight_decay": 0.0, "pull": 0.0}
    rule = HeavyBall(lr=0.1, momentum=0.5, products=Products(), **terms)
    found = no_gradient(rule, 0.0, anchored=False, slotted=True, steps=2)
    expected = torch.tensor([[1, 0, 0], [1, 0, -0.05], [1, 0, -0.075]], dtype=torch.float64)
    torch.testing.assert_close(found.value, expected)
    assert found.slot is not None
    torch.testing.assert_close(found.slot[:, 2], torch.tensor([1, 0.5, 0.25], dtype=torch.float64))
