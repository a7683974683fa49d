"""Networks as people write them, for tests and benchmarks: nothing here knows of fedclust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FedAvgCNN(nn.Module):
    """The CNN of the FedAvg paper, as most repositories of the field have it."""

    def __init__(self, in_channels: int = 1, num_classes: int = 10, features: int = 1024) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv2d(in_channels, 32, kernel_size=5, padding=0, stride=1, bias=True),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=(2, 2)),
        )
        self.conv2 = nn.Sequential(
            nn.Conv2d(32, 64, kernel_size=5, padding=0, stride=1, bias=True),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=(2, 2)),
        )
        self.fc1 = nn.Sequential(nn.Linear(features, 512), nn.ReLU(inplace=True))
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv1(x)
        out = self.conv2(out)
        out = torch.flatten(out, 1)
        out = self.fc1(out)
        out = self.fc(out)
        return out


class LeafCNN(nn.Module):
    """The CNN of LEAF for FEMNIST, in PyTorch."""

    def __init__(self, num_classes: int = 62, side: int = 28) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1 = nn.Linear(64 * (side // 4) ** 2, 2048)
        self.fc2 = nn.Linear(2048, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = x.view(x.shape[0], -1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


class DroppingCNN(nn.Module):
    """The CNN of the first public code of FedAvg in PyTorch, for images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=3)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=2)
        self.conv2_drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(20, 50)
        self.drop = nn.Dropout()
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, x.shape[1] * x.shape[2] * x.shape[3])
        x = F.relu(self.fc1(x))
        x = self.drop(x)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)


class LeNet5(nn.Module):
    """The network of PyTorch's tutorial, with its own count of features and its own order."""

    def __init__(self, in_channels: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)
        self.conv1 = nn.Conv2d(in_channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)

    def forward(self, x: Tensor, verbose: bool = False) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = x.view(-1, self.num_flat_features(x))
        if verbose:
            print(x.shape)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = self.fc3(x)
        return x

    def num_flat_features(self, x: Tensor) -> int:
        size = x.size()[1:]
        num_features = 1
        for s in size:
            num_features *= s
        return num_features


class NormedMLP(nn.Module):
    """A perceptron with batch normalisation and dropout."""

    def __init__(self, features: int = 64, num_classes: int = 10, hidden: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(features, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden, momentum=None),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class VGG9(nn.Module):
    """VGG-9 as in federated learning repositories, with batch normalisation if asked for."""

    def __init__(
        self, in_channels: int = 3, num_classes: int = 10, width: int = 32, batch_norm: bool = False
    ) -> None:
        super().__init__()
        config = [width, 2 * width, "M", 4 * width, 4 * width, "M", 8 * width, 8 * width, "M"]
        layers: list[nn.Module] = []
        for v in config:
            if v == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
            else:
                layers += [nn.Conv2d(in_channels, v, kernel_size=3, padding=1)]
                layers += [nn.BatchNorm2d(v)] if batch_norm else []
                layers += [nn.ReLU(inplace=True)]
                in_channels = v
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(8 * width * 4 * 4, 16 * width),
            nn.ReLU(True),
            nn.Linear(16 * width, 16 * width),
            nn.ReLU(True),
            nn.Linear(16 * width, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = x.view(x.size(0), -1)
        x = self.classifier(x)
        return x


class Block(nn.Module):
    """The basic block of residual networks, with the normalisation that is asked for."""

    def __init__(
        self, in_planes: int, planes: int, stride: int, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=1, padding=1, bias=False)
        self.bn2 = norm(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_planes, planes, kernel_size=1, stride=stride, bias=False),
                norm(planes),
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        out = F.relu(out)
        return out


class ResNet(nn.Module):
    """Residual networks for CIFAR: n blocks of each width."""

    def __init__(
        self,
        blocks: list[int],
        widths: list[int],
        norm: Callable[[int], nn.Module] = nn.BatchNorm2d,
        num_classes: int = 10,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], kernel_size=3, stride=1, padding=1, bias=False)
        self.bn1 = norm(widths[0])
        layers, before = [], widths[0]
        for stage, (number, width) in enumerate(zip(blocks, widths, strict=True)):
            for block in range(number):
                stride = 2 if stage and not block else 1
                layers.append(Block(before, width, stride, norm))
                before = width
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.linear = nn.Linear(before, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layers(out)
        out = self.avgpool(out)
        out = torch.flatten(out, 1)
        return self.linear(out)


class HarCNN(nn.Module):
    """A 1-D CNN for human activity recognition: 9 signals of 128 samples."""

    def __init__(self, signals: int = 9, samples: int = 128, num_classes: int = 6) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(signals, 64, kernel_size=3)
        self.conv2 = nn.Conv1d(64, 64, kernel_size=3)
        self.dropout = nn.Dropout(0.5)
        self.pool = nn.MaxPool1d(2)
        self.fc1 = nn.Linear(64 * ((samples - 4) // 2), 100)
        self.fc2 = nn.Linear(100, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.pool(self.dropout(x))
        x = x.view(x.size(0), -1)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


class CharLSTM(nn.Module):
    """LEAF's two-layer LSTM for the next character."""

    def __init__(self, vocabulary: int = 80, embedding: int = 8, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        embedded = self.embedding(x)
        out, _ = self.lstm(embedded)
        return self.fc(out[:, -1, :])


class CharTransformer(nn.Module):
    """A small transformer that says the next character."""

    def __init__(
        self, vocabulary: int = 80, length: int = 80, width: int = 64, layers: int = 2
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(1, length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x) + self.position
        hidden = self.encoder(hidden)
        return self.head(hidden.mean(dim=1))


class TabularNet(nn.Module):
    """A table's network: ids of categories in the first columns, numbers behind them."""

    def __init__(
        self, sizes: tuple[int, ...] = (12, 7, 5), numbers: int = 13, num_classes: int = 2
    ) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(size, 4) for size in sizes])
        self.norm = nn.LayerNorm(numbers)
        self.fc1 = nn.Linear(4 * len(sizes) + numbers, 64)
        self.fc2 = nn.Linear(64, 32)
        self.fc3 = nn.Linear(32, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        ids = x[:, : len(self.embeddings)].long().clamp(0, 4)
        parts = [layer(ids[:, i]) for i, layer in enumerate(self.embeddings)]
        parts.append(self.norm(x[:, len(self.embeddings) :]))
        x = torch.cat(parts, dim=1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class Attention(nn.Module):
    """Self-attention of SimpleViT, spelt out, or as nanoGPT calls it, where it is causal."""

    def __init__(self, width: int, heads: int = 4, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm = nn.LayerNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        parts = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (t.view(b, n, self.heads, width // self.heads).transpose(1, 2) for t in parts)
        if self.causal:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            dots = torch.matmul(q, k.transpose(-1, -2)) * (width // self.heads) ** -0.5
            out = torch.matmul(dots.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, width))


class Blocks(nn.Module):
    """Attention and a perceptron behind a normalisation, several times."""

    def __init__(self, width: int, depth: int, causal: bool = False) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Attention(width, causal=causal) for _ in range(depth)])
        self.perceptrons = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.GELU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for attention, perceptron in zip(self.attentions, self.perceptrons, strict=True):
            x = attention(x) + x
            x = perceptron(x) + x
        return self.norm(x)


class SimpleViT(nn.Module):
    """A vision transformer of patches of 4 x 4, as many as the image has."""

    def __init__(self, side: int = 32, width: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.LayerNorm(48), nn.Linear(48, width), nn.LayerNorm(width))
        self.register_buffer("position", torch.randn((side // 4) ** 2, width), persistent=False)
        self.blocks = Blocks(width, depth)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, 16 * c)
        x = self.blocks(self.embed(x) + self.position)
        return self.head(x.mean(dim=1))


class NanoGPT(nn.Module):
    """nanoGPT, which says the last character's next one."""

    def __init__(self, vocabulary: int = 80, length: int = 80, width: int = 64, depth: int = 2):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(length, width)
        self.blocks = Blocks(width, depth, causal=True)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, idx: Tensor) -> Tensor:
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.blocks(self.wte(idx) + self.wpe(pos))
        return self.lm_head(x[:, -1])


class FTTransformer(nn.Module):
    """A transformer over the columns of a table, each a token, and one that sums up."""

    def __init__(self, columns: int = 16, width: int = 32, depth: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, width) * 0.2)
        self.bias = nn.Parameter(torch.randn(columns, width) * 0.2)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.2)
        self.blocks = Blocks(width, depth)
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.unsqueeze(-1) * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], dim=1)
        return self.head(F.relu(self.blocks(tokens)[:, 0]))


def group_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(2, channels)


@dataclass(frozen=True)
class Case:
    """A network, small for tests or as it is published, and what its examples are.

    Attributes:
        make: the network, small if so asked.
        shape: of an example.
        classes: so many there are.
        small: shape of an example for the small one, where that is another.
        vocabulary: number of token ids; None where inputs are numbers.
    """

    make: Callable[[bool], nn.Module]
    shape: tuple[int, ...]
    classes: int = 10
    small: tuple[int, ...] | None = None
    vocabulary: int | None = None


NETWORKS = {
    "FedAvg CNN": Case(lambda small: FedAvgCNN(features=1024), (1, 28, 28)),
    "LEAF CNN": Case(lambda small: LeafCNN(62, 12 if small else 28), (1, 28, 28), 62, (1, 12, 12)),
    "LeNet-5": Case(lambda small: LeNet5(), (3, 32, 32)),
    "VGG-9": Case(lambda small: VGG9(width=2 if small else 32), (3, 32, 32)),
    "VGG-9, BatchNorm": Case(
        lambda small: VGG9(width=2 if small else 32, batch_norm=True), (3, 32, 32)
    ),
    "MLP, dropout, BatchNorm": Case(
        lambda small: NormedMLP(64 if small else 784, 10, 16 if small else 200),
        (1, 28, 28),
        10,
        (1, 8, 8),
    ),
    "ResNet-8, BatchNorm": Case(
        lambda small: ResNet([1, 1, 1], [2, 4, 6] if small else [16, 32, 64]),
        (3, 32, 32),
        10,
        (3, 8, 8),
    ),
    "ResNet-20, BatchNorm": Case(
        lambda small: ResNet([3, 3, 3], [2, 4, 6] if small else [16, 32, 64]),
        (3, 32, 32),
        10,
        (3, 8, 8),
    ),
    "ResNet-18, GroupNorm": Case(
        lambda small: ResNet(
            [2, 2, 2, 2], [2, 4, 4, 6] if small else [64, 128, 256, 512], group_norm
        ),
        (3, 32, 32),
        10,
        (3, 8, 8),
    ),
    "1-D CNN for HAR": Case(
        lambda small: HarCNN(samples=16 if small else 128), (9, 128), 6, (9, 16)
    ),
    "LSTM for characters": Case(
        lambda small: CharLSTM(80, 4, 8) if small else CharLSTM(), (80,), 80, (6,), 80
    ),
    "transformer for characters": Case(
        lambda small: CharTransformer(80, 6, 8, 1) if small else CharTransformer(),
        (80,),
        80,
        (6,),
        80,
    ),
    "LSTM, 32 hidden": Case(
        lambda small: CharLSTM(80, 4, 8) if small else CharLSTM(80, 8, 32), (80,), 80, (6,), 80
    ),
    "nanoGPT": Case(
        lambda small: NanoGPT(80, 6, 8, 1) if small else NanoGPT(), (80,), 80, (6,), 80
    ),
    "SimpleViT": Case(
        lambda small: SimpleViT(8, 8, 1) if small else SimpleViT(), (3, 32, 32), 10, (3, 8, 8)
    ),
    "FT-Transformer": Case(
        lambda small: FTTransformer(16, 8, 1) if small else FTTransformer(), (16,), 2
    ),
    "table with embeddings": Case(lambda small: TabularNet(), (16,), 2),
}
