"""EDC and MADC: against their definitions, on planted directions, and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fronts import AllTrained
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from fedclust.cluster_methods.agglomerative import Agglomerative
from fedclust.cluster_methods.kmeans import KMeans
from fedclust.cluster_metrics.edc import EDC, embedding
from fedclust.cluster_metrics.madc import MADC
from fedclust.helpers.errors import ConfigError, DivergedError
from fedclust.helpers.rng import Stream

STREAM = Stream.of(0, "clustering")
COMMON = torch.linspace(-1, 1, 40).unsqueeze(0)


def distance_of(metric: Any, updates: Tensor, common: Tensor = COMMON) -> Tensor:
    ids = torch.arange(len(updates))
    distance: Tensor = metric(AllTrained(), common + updates, common, ids, None)
    return distance


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def orthogonal_groups(seed: int = 0, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """21 updates along three orthogonal directions with lengths from 0.5 to 4; and the groups."""
    group = torch.randint(0, 3, (21,), generator=torch.Generator().manual_seed(seed))
    axes = torch.linalg.qr(drawn(40, 3, seed=seed)).Q.T
    length = 0.5 + 3.5 * torch.rand(21, 1, generator=torch.Generator().manual_seed(seed + 1))
    return length * (axes[group] + noise * drawn(21, 40, seed=seed + 2) / 40**0.5), group


def same_partition(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.unsqueeze(1) == a, b.unsqueeze(1) == b)


@pytest.mark.parametrize("components", [1, 3, 5])
def test_edc_is_that_of_a_truncated_svd(components: int) -> None:
    updates = drawn(12, 40)
    svd = TruncatedSVD(components, algorithm="arpack", random_state=0)
    # [P, m], U S of the transposed updates
    directions = svd.fit_transform(updates.double().numpy().T)
    place = cosine_similarity(updates.double().numpy(), directions.T)
    expected = np.linalg.norm(place[:, None] - place, axis=2) / components
    found = distance_of(EDC(num_components=components), updates)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    embedded = embedding(COMMON + updates, COMMON, components).numpy()
    np.testing.assert_allclose(np.abs(embedded[:, ::-1]), np.abs(place), atol=1e-6)


def test_edc_does_not_see_signs_of_singular_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = drawn(12, 40)
    before = distance_of(EDC(num_components=4), updates)
    original = torch.linalg.eigh

    def flipped(matrix: Tensor) -> tuple[Tensor, Tensor]:
        value, vector = original(matrix)
        return value, vector * torch.tensor([-1.0, 1.0] * 6, dtype=vector.dtype)

    monkeypatch.setattr(torch.linalg, "eigh", flipped)
    assert torch.equal(distance_of(EDC(num_components=4), updates), before)


@pytest.mark.parametrize("seed", range(5))
def test_both_recover_orthogonal_groups_of_any_length(seed: int) -> None:
    updates, group = orthogonal_groups(seed)
    edc = distance_of(EDC(num_components=3), updates)
    madc = distance_of(MADC(), updates)
    by_edc = KMeans(num_clusters=3)(edc, STREAM)
    by_madc = Agglomerative(num_clusters=3, linkage="complete")(madc, STREAM)
    assert same_partition(by_edc, group)
    assert torch.equal(by_madc, by_edc)


def test_lengths_of_updates_do_not_count() -> None:
    updates = drawn(9, 40)
    scaled = updates * torch.linspace(0.1, 5, 9).unsqueeze(1)
    torch.testing.assert_close(
        distance_of(MADC(), scaled), distance_of(MADC(), updates), atol=1e-5, rtol=0
    )
    axes, group = orthogonal_groups(noise=0.0)
    edc = distance_of(EDC(num_components=3), axes)
    expected = (group.unsqueeze(1) != group) * 2**0.5 / 3
    torch.testing.assert_close(edc, expected, atol=1e-5, rtol=0)


def test_madc_by_definition() -> None:
    updates = drawn(7, 40)
    similarity = torch.nn.functional.cosine_similarity(updates.unsqueeze(1), updates, dim=2)
    found = distance_of(MADC(), updates)
    for i, j in ((0, 1), (2, 6), (5, 3)):
        others = [z for z in range(7) if z not in (i, j)]
        expected = sum(float((similarity[i, z] - similarity[j, z]).abs()) for z in others) / 5
        assert float(found[i, j]) == pytest.approx(expected, abs=1e-5)


def test_a_client_that_did_not_move_is_no_nan() -> None:
    updates = drawn(6, 40)
    updates[2] = 0
    for metric in (EDC(num_components=2), MADC()):
        assert torch.isfinite(distance_of(metric, updates)).all()
    assert (embedding(COMMON + updates, COMMON, 2)[2] == 0).all()


def test_more_components_than_clients_is_one_line() -> None:
    with pytest.raises(
        ConfigError, match=r"cluster_metric\.num_components=8 .* at most the 7 clients"
    ) as error:
        distance_of(EDC(num_components=8), drawn(7, 40))
    assert "\n" not in str(error.value)
    assert distance_of(EDC(num_components=7), drawn(7, 40)).shape == (7, 7)
    with pytest.raises(ConfigError, match=r"EDC\.num_components=0"):
        EDC(num_components=0)
    with pytest.raises(ConfigError, match="at least 3 clients"):
        distance_of(MADC(), drawn(2, 40))


def test_an_infinite_update_is_said_to_be_one() -> None:
    updates = drawn(5, 40)
    updates[1, 3] = torch.inf
    with pytest.raises(DivergedError, match="not finite"):
        distance_of(EDC(num_components=2), updates)
