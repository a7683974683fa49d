"""Steps of the part of a model that sees images; tensors are [R, B, channels, height, width].

On a CPU with a C compiler convolutions and what follows them are computed by `native`, and those
with the largest kernels by PyTorch's own, one row after the other. Without a compiler the whole
part runs row by row so, channels last. On a GPU all rows go together, and a convolution is `unfold`
and a batched product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedclust.engines.fused.dense import Chain
from fedclust.engines.fused.native.geometry import pair
from fedclust.engines.fused.products import Products
from fedclust.engines.fused.rules import Rule
from fedclust.engines.fused.weights import Weight

_LAST = torch.channels_last


def _split(x: Tensor, like: Tensor) -> Tensor:
    """x [R * B, ...] as [R, B, ...], R and B those of `like`."""
    return x.view(*like.shape[:2], *x.shape[1:])


def _rows_together(rows: Sequence[Tensor]) -> Tensor:
    """Tensors [n, channels, height, width] of R rows as one, channels last."""
    last = [row.permute(0, 2, 3, 1) for row in rows]
    return (torch.stack(last) if len(last) > 1 else last[0].unsqueeze(0)).permute(0, 1, 4, 2, 3)


class _ConvStep:
    """A convolution.

    Args:
        layer: kernel size, stride, padding and dilation.
        weight: kernels of every row, [R, out, in, height, width].
        bias: of every row, [R, 1, out].
        need: whether the gradient of the input is wanted.
    """

    def __init__(
        self,
        layer: nn.Conv2d,
        weight: Weight,
        bias: Weight | None,
        rule: Rule | None,
        need: bool,
        products: Products,
    ) -> None:
        self.weight, self.bias, self.rule, self.need = weight, bias, rule, need
        self.products, self.side = products, pair(layer.kernel_size)
        names = ("stride", "padding", "dilation")
        self.options = {name: pair(getattr(layer, name)) for name in names}


class RowConvStep(_ConvStep):
    """Convolutions one row after the other, by PyTorch's own kernels of one model."""

    def forward(self, x: Tensor) -> Tensor:
        self.x = self.products.rounded(x)
        kernels = self.products.rounded(self.weight.value)
        biases = [None] * len(kernels) if self.bias is None else self.bias.value[:, 0].unbind()
        stride, padding, dilation = self.options.values()
        return _rows_together(
            [
                functional.conv2d(x, kernel, bias, stride, padding, dilation)
                for x, kernel, bias in zip(self.x, kernels, biases, strict=True)
            ]
        )

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        kernels = self.products.rounded(self.weight.value)
        rows = zip(self.products.rounded(delta), self.x, kernels, strict=True)
        backs, gradients = zip(*(self._gradients(*row) for row in rows), strict=True)
        if not self.weight.frozen:
            self.rule.whole(self.weight, _rows_together(gradients))
        if self.bias is not None and not self.bias.frozen:
            self.rule.whole(self.bias, delta.sum((1, 3, 4)).unsqueeze(1))
        return _rows_together(backs) if self.need else delta

    def _gradients(self, delta: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
        """Of one row: the gradients of its images and of its kernel, where they are wanted."""
        back, gradient, _ = torch.ops.aten.convolution_backward(
            # the kernels would otherwise fall back to the slower layout of the gradient
            delta.contiguous(memory_format=_LAST),
            x,
            kernel,
            None,
            *self.options.values(),
            False,
            [0, 0],
            1,
            [self.need, not self.weight.frozen, False],
        )
        return back, gradient


class StackedConvStep(_ConvStep):
    """The convolutions of all rows as batched products of the unfolded images."""

    def _turned(self) -> Tensor:
        """The kernels as [R, 1, out, in * height * width]."""
        return self.weight.value.flatten(2).unsqueeze(1)

    def forward(self, x: Tensor) -> Tensor:
        self.size = (x.shape[3], x.shape[4])
        columns = functional.unfold(x.flatten(0, 1), self.side, **self.options)
        self.columns = _split(columns, x)  # [R, B, in * height * width, pixels]
        out = self.products.matmul(self._turned(), self.columns)
        if self.bias is not None:
            out += self.bias.value.unsqueeze(-1)
        sides = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(self.size, self.side, *self.options.values(), strict=True)
        ]
        return out.view(*out.shape[:3], *sides)

    def backward(self, delta: Tensor) -> Tensor:
        assert self.rule is not None
        grad = delta.flatten(3)  # [R, B, out, pixels]
        back = delta
        if self.need:
            columns = self.products.matmul(self._turned().mT, grad).flatten(0, 1)
            back = _split(functional.fold(columns, self.size, self.side, **self.options), grad)
        if not self.weight.frozen:
            kernel = self.products.matmul(grad, self.columns.mT).sum(1)
            self.rule.whole(self.weight, kernel.view(self.weight.value.shape))
        if self.bias is not None and not self.bias.frozen:
            self.rule.whole(self.bias, grad.sum((1, 3)).unsqueeze(1))
        return back


class PoolStep:
    """Maximum over windows."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.options = (
            pair(layer.kernel_size),
            pair(layer.stride),
            pair(layer.padding),
            pair(layer.dilation),
            layer.ceil_mode,
        )

    def forward(self, x: Tensor) -> Tensor:
        self.x = x.flatten(0, 1)
        y, self.where = torch.ops.aten.max_pool2d_with_indices(self.x, *self.options)
        return _split(y, x)

    def backward(self, delta: Tensor) -> Tensor:
        grad = delta.flatten(0, 1)
        # in two layouts the larger tensor is copied twice
        if self.x.is_contiguous(memory_format=_LAST):
            grad = grad.contiguous(memory_format=_LAST)
        back: Tensor = torch.ops.aten.max_pool2d_with_indices_backward(
            grad, self.x, *self.options, self.where
        )
        return _split(back, delta)


class AverageStep:
    """Mean over windows."""

    def __init__(self, layer: nn.AvgPool2d) -> None:
        self.options = (
            pair(layer.kernel_size),
            pair(layer.stride),
            pair(layer.padding),
            layer.ceil_mode,
            layer.count_include_pad,
            layer.divisor_override,
        )

    def forward(self, x: Tensor) -> Tensor:
        self.x = x.flatten(0, 1)
        return _split(torch.ops.aten.avg_pool2d(self.x, *self.options), x)

    def backward(self, delta: Tensor) -> Tensor:
        grad = delta.flatten(0, 1)
        return _split(torch.ops.aten.avg_pool2d_backward(grad, self.x, *self.options), delta)


class ResponseNormStep:
    """y = x / d^beta with d = k + alpha / size * sum of x² over neighbouring channels."""

    def __init__(self, layer: nn.LocalResponseNorm, channels: int, device: torch.device) -> None:
        self.beta, self.k, self.alpha = layer.beta, float(layer.k), layer.alpha / layer.size
        channel = torch.arange(channels, device=device)
        distance = channel - channel.unsqueeze(1)
        # channel c sees channels c - size // 2 … c + (size - 1) // 2
        band = (distance >= -(layer.size // 2)) & (distance <= (layer.size - 1) // 2)
        self.band = band.to(torch.float32)

    def _over(self, band: Tensor, x: Tensor) -> Tensor:
        """Sums over neighbouring channels of x [R, B, channels, height, width]."""
        return torch.matmul(x.movedim(2, -1), band.mT).movedim(-1, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.x = x
        self.d = self._over(self.band, x.square()).mul_(self.alpha).add_(self.k)
        self.scale = self.d.pow(-self.beta)
        return x * self.scale

    def backward(self, delta: Tensor) -> Tensor:
        direct = delta * self.scale
        through = self._over(self.band.mT, direct * self.x / self.d)
        return direct.sub_(through.mul_(self.x), alpha=2 * self.alpha * self.beta)


class PadStep:
    """Zeros around the images, possibly more on one side."""

    def __init__(self, layer: nn.ZeroPad2d) -> None:
        self.sides = list(layer.padding)

    def forward(self, x: Tensor) -> Tensor:
        return _split(functional.pad(x.flatten(0, 1), self.sides), x)

    def backward(self, delta: Tensor) -> Tensor:
        back = functional.pad(delta.flatten(0, 1), [-side for side in self.sides])
        return _split(back, delta)


class RowByRowStep:
    """A part of the model, one row after the other."""

    def __init__(self, parts: Sequence[Chain]) -> None:
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part.forward(x[i : i + 1]) for i, part in enumerate(self.parts)])

    def backward(self, delta: Tensor) -> Tensor:
        """No layer before this part needs its gradient."""
        for i, part in enumerate(self.parts):
            part.backward(delta[i : i + 1])
        return delta
