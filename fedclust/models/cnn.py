"""Convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence

from fedclust.helpers.errors import require
from fedclust.helpers.ranges import AtLeastZero, BelowOne, NonNegative, Side, Width
from fedclust.models.initial import keras_default, named_init, truncated_normal
from fedclust.models.sequence import Model, Shape, Stack, check_widths, of_images


def cnn(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[Width],
    kernel: Side,
    padding: AtLeastZero,
    hidden: Sequence[Width],
    dropout: BelowOne = 0.0,
    init: str = "torch",
) -> Model:
    """Blocks of convolution, ReLU and 2x2 maximum pooling, then fully connected layers.

    Args:
        in_shape: (channels, height, width).
        channels: output channels of every block; none gives a fully connected network.
        padding: zeros on every side of a convolution's input.
        dropout: rate before the first fully connected layer.
        init: `torch` or `keras`, see `fedclust.models.initial`.

    Raises:
        ConfigError: for images too small for the blocks.
    """
    check_widths("model.channels", channels)
    check_widths("model.hidden", hidden)
    require(kernel >= 1, "model.kernel", kernel, "at least 1")
    require(0 <= padding < kernel, "model.padding", padding, "at least 0 and below model.kernel")
    draw = named_init(init)

    def build(shape: Shape) -> Model:
        stack = Stack(shape, draw)
        for width in channels:
            stack.conv(width, kernel, padding=padding).relu().pool(2, 2)
        stack.dropout(dropout)
        for width in hidden:
            stack.linear(width).relu()
        return stack.linear(num_classes).model()

    what = f"a cnn of channels {list(channels)}, kernel {kernel}, padding {padding}"
    return of_images(what, tuple(int(size) for size in in_shape), build)


def flex_femnist_cnn(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[Width],
    hidden: Sequence[Width],
    dropout: BelowOne,
    l2: NonNegative,
) -> Model:
    """FlexCFL's network for FEMNIST: six convolutions, strided ones in place of pooling.

    Args:
        in_shape: (channels, height, width), at least 13 x 13 for two blocks.
        channels: output channels of each block of three convolutions; none gives a fully connected
            network.
        dropout: rate after every block and every hidden layer.
        l2: c of the penalty c·ΣW² on the kernels of the fully connected layers.

    Raises:
        ConfigError: for smaller images.
    """
    check_widths("model.channels", channels)
    check_widths("model.hidden", hidden)
    require(l2 >= 0, "model.l2", l2, "at least 0")

    def build(shape: Shape) -> Model:
        stack = Stack(shape, keras_default)
        for width in channels:
            stack.conv(width, 3).relu().conv(width, 3).relu().conv_same(width, 5, stride=2).relu()
            stack.dropout(dropout)
        for width in hidden:
            stack.linear(width, l2=l2).relu().dropout(dropout)
        return stack.linear(num_classes, l2=l2).model()

    return of_images("flex_femnist_cnn", tuple(int(size) for size in in_shape), build)


def tf_cifar(
    in_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[Width],
    hidden: Sequence[Width],
    l2: NonNegative,
) -> Model:
    """The network of the TensorFlow CIFAR-10 tutorial, as IFCA's released code uses it on 24 x 24
    crops.

    Args:
        in_shape: (channels, height, width).
        channels: output channels of the two convolutions; none gives a fully connected network.
        l2: c of the penalty c·ΣW² on the kernels of the hidden fully connected layers.

    Raises:
        ConfigError: when the examples are no images.
    """
    check_widths("model.channels", channels)
    allowed = "two widths of at least 1, or none"
    require(len(channels) in (0, 2), "model.channels", list(channels), allowed)
    check_widths("model.hidden", hidden)
    require(l2 >= 0, "model.l2", l2, "at least 0")

    def build(shape: Shape) -> Model:
        stack = Stack(shape, keras_default)
        if channels:
            first, second = channels
            stack.conv(first, 5, padding=2, init=truncated_normal(0.05, 0.0)).relu()
            stack.pool(3, 2, same=True).response_norm(9, alpha=0.001, beta=0.75, k=1.0)
            stack.conv(second, 5, padding=2, init=truncated_normal(0.05, 0.1)).relu()
            stack.response_norm(9, alpha=0.001, beta=0.75, k=1.0).pool(3, 2, same=True)
        for width in hidden:
            stack.linear(width, l2=l2, init=truncated_normal(0.04, 0.1)).relu()
        last = 1 / hidden[-1] if hidden else 0.04  # 1 / 192 in the tutorial
        return stack.linear(num_classes, init=truncated_normal(last, 0.0)).model()

    return of_images("tf_cifar", tuple(int(size) for size in in_shape), build)
