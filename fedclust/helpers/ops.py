"""Pure functions of tensors that several methods share.

Sizes reach [2400, 159010] float32 (1.5 GB), so nothing here makes a temporary of the size of its
input: work is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_CPU_BLOCK = 2**20  # numbers in one temporary: 4 MiB of float32 stay in the cache
_GPU_BLOCK = 2**24  # 64 MiB keep the device busy
_TINY_NORM = 1e-12  # below this a vector has no direction


def on_host(*tensors: Tensor) -> list[Tensor]:
    """The tensors in the host's memory, by one copy and one wait; on a CPU themselves."""
    if all(x.is_cpu for x in tensors):
        return list(tensors)
    # numbers of more bytes first, so that all lie where numbers of their type may
    order = sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())
    parts = [tensors[i].contiguous().view(-1).view(torch.uint8) for i in order]
    copies = torch.cat(parts).cpu().split([len(part) for part in parts])  # type: ignore[no-untyped-call]
    found = {
        i: copy.view(tensors[i].dtype).view(tensors[i].shape)
        for i, copy in zip(order, copies, strict=True)
    }
    return [found[i] for i in range(len(tensors))]


def _blocks(length: int, other: int, like: Tensor) -> Iterator[slice]:
    """Slices of an axis of `length` entries of `other` numbers each, for the device of `like`."""
    size = _GPU_BLOCK if like.is_cuda else _CPU_BLOCK
    step = max(1, size // max(1, other))
    return (slice(begin, begin + step) for begin in range(0, length, step))


def cluster_sum(
    values: Tensor,
    label: Tensor,
    num_clusters: int,
    weight: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Sum of the rows of each cluster, [K, P].

    A cluster's sum depends on its own rows and their order only, and is the same in every run.

    Args:
        values: [C, P] float32.
        label: [C] int64 in [0, K).
        num_clusters: K.
        weight: [C] factor of each row, None = 1.
        dtype: what is added in, and the result is; None = that of the values.

    Raises:
        ValueError: if a label is outside [0, K) or the shapes do not fit.
    """
    if label.shape != values.shape[:1]:
        raise ValueError(
            f"got labels {tuple(label.shape)} for values {tuple(values.shape)}, expected one a row"
        )
    known = label.cpu()
    check_labels(known, num_clusters)
    total = values.new_zeros(num_clusters, values.shape[1], dtype=dtype)
    add_to_clusters(total, values, known, weight)
    return total


def check_labels(label: Tensor, num_clusters: int) -> None:
    """ValueError with the least and the largest of labels [C] on the host outside [0, K)."""
    if len(label) and not 0 <= int(label.min()) <= int(label.max()) < num_clusters:
        raise ValueError(
            f"got labels from {int(label.min())} to {int(label.max())}, expected 0 to "
            f"{num_clusters - 1}"
        )


def check_weights(weight: Tensor | None) -> None:
    """ValueError with the smallest of weights [C] below 0; the host waits for those on a GPU."""
    if weight is not None and len(weight) and not (least := float(weight.min())) >= 0:
        raise ValueError(f"got a weight of {least}, expected weights of at least 0")


def add_to_clusters(total: Tensor, values: Tensor, label: Tensor, weight: Tensor | None) -> None:
    """Add rows [C, P] float32, times weights [C], to float totals [K, P] by label [C], in order."""
    if values.is_cuda:  # index_add_ would add in an order that changes from run to run
        _add_by_cluster(total, values, label, weight)
    elif weight is None and total.dtype == values.dtype:
        total.index_add_(0, label, values)
    else:
        factors = torch.ones(len(label), dtype=total.dtype) if weight is None else weight
        for row, (cluster, factor) in enumerate(zip(label.tolist(), factors.tolist(), strict=True)):
            total[cluster].add_(values[row], alpha=factor)  # no temporary, unlike values * weight


def _add_by_cluster(total: Tensor, values: Tensor, label: Tensor, weight: Tensor | None) -> None:
    """As `add_to_clusters`, by reductions of fixed order, one for each of the host's labels."""
    for cluster in range(len(total)):
        members = (label == cluster).nonzero().squeeze(1).to(values.device, non_blocking=True)
        for rows in _blocks(len(members), values.shape[1], values):
            block = values[members[rows]].to(total.dtype)
            if weight is not None:
                own = weight.to(block.device, non_blocking=True)[members[rows]]
                block *= own.to(block.dtype).unsqueeze(1)
            total[cluster] += block.sum(0)


def one_hot(index: Tensor, size: int) -> Tensor:
    """Int64 [..., size], 1 where the last place is the index [...] in [0, size), else 0."""
    return (index.unsqueeze(-1) == torch.arange(size, device=index.device)).to(torch.int64)


def cluster_mean(
    values: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    *,
    empty: Tensor,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Mean of the rows of each cluster, [K, P].

    Args:
        values: [C, P] float32.
        label: [C] int64 in [0, K).
        weight: [C] >= 0, e.g. examples; None = equal.
        empty: [K, P], kept where no weight falls.
        dtype: what is added in, see `cluster_sum`.

    Raises:
        ValueError: if a label is outside [0, K) or a weight is negative.
    """
    check_weights(weight)
    total = cluster_sum(values, label, len(empty), weight, dtype)
    return mean_of(total, label, weight, empty=empty)


def mean_of(total: Tensor, label: Tensor, weight: Tensor | None = None, *, empty: Tensor) -> Tensor:
    """Means [K, P] float32 from `total`, weighted sums [K, P], changed; see `cluster_mean`."""
    share = torch.ones(len(label), dtype=torch.float64, device=total.device)
    if weight is not None:
        share = weight.to(torch.float64)
    member = label == torch.arange(len(empty), device=label.device).unsqueeze(1)  # [K, C]
    mass = (member * share).sum(1, keepdim=True)  # [K, 1]
    filled = mass > 0
    mean = total.div_(mass.where(filled, mass.new_ones(())).to(total.dtype))
    return mean.to(empty.dtype).where(filled, empty)


def _products(a: Tensor, b: Tensor, *, centred: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Inner products [C, K], squared norms [C] and [K], float64; `centred`: about a's mean row."""
    inner = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    square_a, square_b = inner.new_zeros(len(a)), inner.new_zeros(len(b))
    for columns in _blocks(a.shape[1], len(a) + len(b), a):
        left, right = a[:, columns].double(), b[:, columns].double()
        if centred:
            middle = left.mean(0)
            left, right = left - middle, right - middle
        inner.addmm_(left, right.T)
        square_a += left.square().sum(1)
        square_b += right.square().sum(1)
    return inner, square_a, square_b


def inner_products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products [C, K] of rows a [C, P] and b [K, P], and squared norms of a; float64."""
    inner, square, _ = _products(a, b, centred=False)
    return inner, square


def gram(values: Tensor, origin: Tensor) -> Tensor:
    """Inner products [C, C] float64 of rows [C, P] about `origin` [1, P], never stored whole."""
    total = torch.zeros(len(values), len(values), dtype=torch.float64, device=values.device)
    for columns in _blocks(values.shape[1], len(values), values):
        block = values[:, columns].double() - origin[:, columns]
        total.addmm_(block, block.T)
    return total


def leading_coordinates(products: Tensor, count: int) -> Tensor:
    """Coordinates of rows along their leading singular directions, [C, count], up to their signs.

    With the rows A = U S V' they are U S = A V. The products A A' = U S^2 U' say all of it, so V,
    as long as a row, is never made.

    Args:
        products: [C, C] float64, symmetric: products of the rows among themselves.
        count: in [1, C].
    """
    square, vector = torch.linalg.eigh(products)  # ascending
    leading: Tensor = vector[:, -count:] * square[-count:].clamp(min=0).sqrt()
    return leading


def leading_directions(values: Tensor, origin: Tensor, count: int) -> Tensor:
    """The leading right singular vectors of the rows seen from `origin`, [D, P] orthonormal, up to
    their signs; D is `count`, or how many there are with a singular value above rounding.

    They come from the products of the rows, A A' = U S^2 U' and V' = S^-1 U' A.

    Args:
        values: [C, P].
        origin: [1, P]; a mean in float64, or its rounding is one more direction.
        count: at least 1.
    """
    square, vector = torch.linalg.eigh(gram(values, origin))  # ascending
    least = len(values) * torch.finfo(square.dtype).eps * square[-1:].clamp(min=0)
    kept = torch.nonzero(square > least).squeeze(1)[-count:].flip(0)
    by_row = vector[:, kept] / square[kept].sqrt()  # [C, D]
    found = values.new_empty(len(kept), values.shape[1])
    for columns in _blocks(values.shape[1], len(values), values):
        rows = values[:, columns].double()
        found[:, columns] = by_row.T @ (rows - origin[:, columns])
    return found


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosines of rows [C, P] and [K, P], [C, K] float32 in [-1, 1]; 0 for norms below 1e-12."""
    inner, square_a, square_b = _products(a, b, centred=False)
    return cosine_of(inner, square_a.unsqueeze(1), square_b).float()


def cosine_of(inner: Tensor, square_a: Tensor, square_b: Tensor) -> Tensor:
    """Cosines in [-1, 1] from inner products and squared norms, all float64; 0 where a norm is
    below 1e-12.

    Args:
        inner: [C, K]; squares broadcast to it.
    """
    norm_a, norm_b = square_a.sqrt(), square_b.sqrt()
    directed = (norm_a >= _TINY_NORM) & (norm_b >= _TINY_NORM)
    value = inner / (norm_a * norm_b).where(directed, inner.new_ones(()))
    return value.where(directed, inner.new_zeros(())).clamp_(-1, 1)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances between rows, [C, K] float32.

    The products are taken in float64 about the common mean: local models differ from each other by
    far less than from zero, and in float32 the cancellation would eat the difference.

    Args:
        a: [C, P].
        b: [K, P].
    """
    inner, square_a, square_b = _products(a, b, centred=True)
    return (square_a.unsqueeze(1) + square_b - 2 * inner).clamp_(min=0).sqrt_().float()


def symmetric(distance: Tensor) -> Tensor:
    """Distances [C, C] made symmetric to the last bit, with a zero diagonal."""
    return distance.maximum(distance.T).fill_diagonal_(0)


def discrepancy(params: Tensor, models: Tensor, label: Tensor) -> Tensor:
    """Mean distance of local solutions to their model after aggregation (FlexCFL eq. (3)).

    A float64 number that stays on the device; NaN for no rows.

    Args:
        params: [C, P] local solutions.
        models: [K, P] models after aggregation.
        label: [C] int64 in [0, K), the model each row belongs to.
    """
    total = torch.zeros((), dtype=torch.float64, device=params.device)
    for rows in _blocks(len(params), params.shape[1], params):
        gap = params[rows] - models[label[rows]]
        total += torch.linalg.vector_norm(gap, dim=1).sum(dtype=torch.float64)
    return total / len(params)
