"""Networks that read token ids: recurrent ones, a transformer, convolutions over words.

Each says something of a whole text: its class, or the character that follows. Padding is a token
like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fedclust.helpers.errors import ConfigError, require
from fedclust.helpers.ranges import AtLeastOne, Side, Width
from fedclust.models.sequence import check_widths


def recurrent(
    in_shape: Sequence[int],
    num_classes: int,
    vocabulary: AtLeastOne | None,
    *,
    cell: Literal["lstm", "gru"],
    embedding: Width,
    hidden: Width,
    layers: AtLeastOne,
) -> nn.Module:
    """An Embedding, recurrent layers, and a linear layer on the state behind the last token.

    Args:
        in_shape: (tokens,).
        vocabulary: number of token ids.
        embedding, hidden: widths of a token and of a state.

    Raises:
        ConfigError: when the examples are no token ids.
    """
    return _Recurrent(_ids(in_shape, vocabulary)[0], num_classes, cell, embedding, hidden, layers)


def transformer(
    in_shape: Sequence[int],
    num_classes: int,
    vocabulary: AtLeastOne | None,
    *,
    width: Width,
    heads: AtLeastOne,
    layers: AtLeastOne,
) -> nn.Module:
    """Blocks of attention and a perceptron, normalised before each, and a linear layer on the last
    token.

    Args:
        in_shape: (tokens,).
        vocabulary: number of token ids.
        width: of a token; a multiple of `heads`.

    Raises:
        ConfigError: when the examples are no token ids, or the width is no multiple.
    """
    require(width % heads == 0, "model.width", width, f"a multiple of model.heads={heads}")
    return _Transformer(*_ids(in_shape, vocabulary), num_classes, width, heads, layers)


def text_cnn(
    in_shape: Sequence[int],
    num_classes: int,
    vocabulary: AtLeastOne | None,
    *,
    embedding: Width,
    kernels: Sequence[Side],
    channels: Width,
) -> nn.Module:
    """Convolutions over neighbouring tokens, each channel's maximum over the text, and a linear
    layer (Kim, arXiv 1408.5882, without dropout).

    Args:
        in_shape: (tokens,), at least the widest kernel.
        vocabulary: number of token ids.
        embedding: width of a token.
        kernels: tokens under a kernel, each with `channels` of its own.

    Raises:
        ConfigError: when the examples are no token ids, or shorter than a kernel.
    """
    check_widths("model.kernels", kernels)
    size, length = _ids(in_shape, vocabulary)
    fits = len(kernels) > 0 and max(kernels) <= length
    require(fits, "model.kernels", list(kernels), f"some of at most the {length} tokens of a text")
    return _TextCNN(size, num_classes, embedding, kernels, channels)


def _ids(in_shape: Sequence[int], vocabulary: int | None) -> tuple[int, int]:
    """V, and the tokens of a text."""
    if vocabulary is None or len(in_shape) != 1:
        raise ConfigError(
            f"model: it reads token ids, and an example of the dataset is numbers of shape "
            f"{tuple(in_shape)}: choose another model, or say how many ids there are with "
            "dataset.vocabulary, or what text is with dataset.text"
        )
    return vocabulary, int(in_shape[0])


class _Recurrent(nn.Module):
    def __init__(
        self, vocabulary: int, num_classes: int, cell: str, embedding: int, hidden: int, layers: int
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[cell]
        self.layers = kind(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, Y] of ids x [B, L]."""
        states, _ = self.layers(self.embedding(x))
        logits: Tensor = self.head(states[:, -1])
        return logits


class _Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inside, self.outside = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [B, L, W] of tokens [B, L, W]."""
        # by matrix products: `vmap` cuts the compiled attention into as many and more
        split = self.inside(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each [B, heads, L, W / heads]
        weight = (query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5).softmax(-1)
        x = x + self.outside((weight @ value).transpose(1, 2).flatten(2))
        out: Tensor = x + self.perceptron(self.norm2(x))
        return out


class _Transformer(nn.Module):
    tried_at_once = True

    def __init__(
        self, vocabulary: int, length: int, num_classes: int, width: int, heads: int, layers: int
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, Y] of ids x [B, L]."""
        tokens = self.blocks(self.embedding(x) + self.position.weight)
        logits: Tensor = self.head(self.norm(tokens[:, -1]))
        return logits


class _TextCNN(nn.Module):
    tried_at_once = True

    def __init__(
        self,
        vocabulary: int,
        num_classes: int,
        embedding: int,
        kernels: Sequence[int],
        channels: int,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding, channels, k) for k in kernels)
        self.head = nn.Linear(len(kernels) * channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, Y] of ids x [B, L]."""
        tokens = self.embedding(x).transpose(1, 2)
        found = [conv(tokens).amax(2) for conv in self.convolutions]
        logits: Tensor = self.head(torch.cat(found, 1).relu())
        return logits
