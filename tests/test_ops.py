"""Closed forms, identities and contracts of the shared tensor functions."""

from __future__ import annotations

import pytest
import torch
from pretend_cuda import CUDA, pretend_cuda
from torch import Tensor

from fedclust.helpers import ops
from fedclust.helpers.ops import cluster_mean, cluster_sum, cosine, discrepancy, distances, on_host


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_cluster_mean_by_hand() -> None:
    values = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0], [0.0, 9.0]])
    label = torch.tensor([0, 0, 2, 2])
    empty = torch.full((3, 2), 7.0)
    assert cluster_mean(values, label, empty=empty).tolist() == [[2.0, 1.0], [7.0, 7.0], [2.5, 7.0]]
    weight = torch.tensor([1, 3, 0, 2])
    weighted = cluster_mean(values, label, weight, empty=empty)
    assert weighted.tolist() == [[2.5, 1.5], [7.0, 7.0], [0.0, 9.0]]


def test_cluster_mean_keeps_a_cluster_whose_weights_are_all_zero() -> None:
    mean = cluster_mean(
        torch.ones(2, 3), torch.tensor([0, 1]), torch.tensor([0, 4]), empty=torch.full((2, 3), 5.0)
    )
    assert mean[0].tolist() == [5.0] * 3
    assert mean[1].tolist() == [1.0] * 3


def test_a_cluster_does_not_depend_on_the_others() -> None:
    values, label = drawn(30, 11), torch.arange(30) % 3
    alone = cluster_mean(
        values[label == 1], torch.zeros(10, dtype=torch.int64), empty=torch.zeros(1, 11)
    )
    others = values.clone()
    others[label != 1] = torch.nan
    assert torch.equal(cluster_mean(others, label, empty=torch.zeros(3, 11))[1], alone[0])


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values, label, weight = drawn(9, 50), torch.arange(9) % 4, torch.arange(1, 10)
    models = drawn(4, 50, seed=1)
    whole = (
        cluster_mean(values, label, weight, empty=models),
        distances(values, models),
        cosine(values, models),
        discrepancy(values, models, label),
    )
    monkeypatch.setattr(ops, "_CPU_BLOCK", 100)
    parts = (
        cluster_mean(values, label, weight, empty=models),
        distances(values, models),
        cosine(values, models),
        discrepancy(values, models, label),
    )
    assert torch.equal(whole[0], parts[0])
    for a, b in zip(whole[1:], parts[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_both_ways_of_summing_agree() -> None:
    values, label, weight = drawn(20, 7), torch.arange(20) % 3, torch.rand(20)
    for factor in (None, weight):
        for dtype in (torch.float32, torch.float64):
            rows, clusters = torch.zeros(2, 4, 7, dtype=dtype)
            ops.add_to_clusters(rows, values, label, factor)
            ops._add_by_cluster(clusters, values, label, factor)
            tight = 1e-5 if dtype == torch.float32 else 1e-14
            torch.testing.assert_close(rows, clusters, rtol=tight, atol=tight / 10)
            assert (rows[3] == 0).all()


def test_cluster_mean_is_equivariant_to_the_order_of_clusters_and_rows() -> None:
    values, label, empty = drawn(12, 5), torch.arange(12) % 3, drawn(4, 5, seed=2)
    mean = cluster_mean(values, label, empty=empty)
    rows, clusters = torch.randperm(12), torch.tensor([2, 0, 3, 1])
    renamed = torch.empty_like(empty)
    renamed[clusters] = empty
    again = cluster_mean(values[rows], clusters[label[rows]], empty=renamed)
    torch.testing.assert_close(again[clusters], mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("label", [[0, 3], [-1, 0], [0, 1, 2]])
def test_bad_labels_are_refused(label: list[int]) -> None:
    with pytest.raises(ValueError, match="label"):
        cluster_sum(torch.ones(2, 3), torch.tensor(label), 3)


def test_bad_weights_are_refused() -> None:
    label, empty = torch.tensor([0, 0]), torch.zeros(1, 3)
    with pytest.raises(ValueError, match="weight of -1"):
        cluster_mean(torch.ones(2, 3), label, torch.tensor([2.0, -1.0]), empty=empty)


def test_inputs_stay_as_they_were() -> None:
    values, label, weight, empty = drawn(6, 4), torch.arange(6) % 2, torch.arange(6), drawn(2, 4)
    before = [t.clone() for t in (values, label, weight, empty)]
    cluster_mean(values, label, weight, empty=empty)
    distances(values, empty)
    cosine(values, empty)
    assert all(
        torch.equal(a, b) for a, b in zip(before, (values, label, weight, empty), strict=True)
    )


def test_cosine_of_known_angles_and_of_nothing() -> None:
    a = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1e-13, 0.0], [-2.0, 0.0], [3.0, 3.0]])
    value = cosine(a, torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    expected = torch.tensor([[1, 0], [0, 0], [0, 0], [-1, 0], [0.5**0.5, 0.5**0.5]])
    torch.testing.assert_close(value, expected.float())


def test_distances_equal_the_definition_even_where_models_nearly_coincide() -> None:
    common = 100 * drawn(1, 4000)
    models = common + 1e-3 * drawn(6, 4000, seed=1)
    exact = (models.double().unsqueeze(1) - models.double()).norm(dim=2)
    torch.testing.assert_close(distances(models, models).double(), exact, rtol=1e-6, atol=1e-7)


def test_discrepancy_by_hand() -> None:
    params = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    models = torch.tensor([[0.0, 0.0], [0.0, 3.0]])
    assert float(discrepancy(params, models, torch.tensor([0, 1]))) == pytest.approx((5 + 2) / 2)
    assert float(discrepancy(params, models, torch.tensor([0, 0]))) == pytest.approx((5 + 1) / 2)


def test_copies_to_the_host() -> None:
    """Of any type and shape, in one wait."""
    tensors = [
        torch.tensor([True, False, True]),
        torch.tensor(2.5),
        torch.arange(6).view(2, 3).T,
        torch.empty(0, 4),
        torch.tensor([1.5, -0.0, torch.inf], dtype=torch.float64),
    ]
    assert all(a is b for a, b in zip(on_host(*tensors), tensors, strict=True))
    with pretend_cuda() as device:
        there = [x.to(CUDA, non_blocking=True) for x in tensors]
        found = on_host(*there)
        assert device.waits.total() == 1
    for a, b in zip(found, tensors, strict=True):
        assert a.is_cpu
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_leading_directions() -> None:
    rows = drawn(6, 40) + 5
    middle = rows.mean(0, keepdim=True, dtype=torch.float64)
    _, _, v = torch.linalg.svd((rows - middle).double(), full_matrices=False)
    found = ops.leading_directions(rows, middle, 3)
    torch.testing.assert_close(found.double().abs(), v[:3].abs(), atol=1e-5, rtol=1e-4)
    # about their mean six rows span five directions, in which no distance is lost
    whole = ops.leading_directions(rows, middle, 50)
    assert len(whole) == 5
    torch.testing.assert_close(whole @ whole.T, torch.eye(5), atol=1e-5, rtol=0)
    seen = rows @ whole.T
    torch.testing.assert_close(
        torch.cdist(seen, seen), torch.cdist(rows, rows), rtol=1e-4, atol=1e-4
    )
    assert len(ops.leading_directions(rows[:1].repeat(4, 1), rows[:1], 3)) == 0


def test_coordinates_along_the_leading_directions() -> None:
    rows = drawn(6, 40).double()
    u, s, v = torch.linalg.svd(rows, full_matrices=False)
    found = ops.leading_coordinates(rows @ rows.T, 3)
    torch.testing.assert_close(found.abs().flip(1), (u[:, :3] * s[:3]).abs())
    torch.testing.assert_close(found.abs().flip(1), (rows @ v[:3].T).abs())
