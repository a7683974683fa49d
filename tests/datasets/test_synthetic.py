import numpy as np
import pytest
import torch

from fedclust.datasets.synthetic import Synthetic
from fedclust.helpers.errors import ConfigError


def test_published_size_and_layout() -> None:
    dataset = Synthetic().load()
    assert abs(len(dataset.x_train) - 75_349) < 0.01 * 75_349
    assert dataset.shape == (60,)
    assert dataset.num_classes == 10
    sizes = dataset.owner.bincount()
    assert len(sizes) == 100
    assert int(sizes.min()) >= 50
    assert len(dataset.x_test) == 0


def test_it_depends_on_its_own_seed_only() -> None:
    one, two, other = (Synthetic(num_devices=5, total=1000, data_seed=s).load() for s in (3, 3, 4))
    assert torch.equal(one.x_train, two.x_train)
    assert torch.equal(one.y_train, two.y_train)
    assert not torch.equal(one.x_train[:50], other.x_train[:50])


def test_sizes_as_drawn_follow_the_lognormal_law() -> None:
    sizes = Synthetic(num_devices=4000, total=None)._sizes(np.random.default_rng(0))
    assert sizes.min() >= 50
    assert np.median(sizes - 50) == pytest.approx(np.exp(4), rel=0.15)


def test_the_variance_of_feature_j_is_j_to_the_minus_1_2() -> None:
    dataset = Synthetic(num_devices=1, total=40_000).load()
    variance = dataset.x_train.double().var(0)
    expected = torch.arange(1, 61, dtype=torch.float64) ** -1.2
    torch.testing.assert_close(variance, expected, rtol=0.05, atol=0)


def test_devices_spread_with_alpha_and_beta() -> None:
    def means(beta: float) -> torch.Tensor:
        dataset = Synthetic(alpha=0, beta=beta, num_devices=200, total=12_000).load()
        assert dataset.owner is not None
        return torch.stack([dataset.x_train[dataset.owner == u].mean() for u in range(200)])

    # the mean over 60 features of N(B_k, 1) has variance beta^2 + 1/60
    assert float(means(0.0).var()) == pytest.approx(1 / 60, rel=0.35)
    assert float(means(3.0).var()) == pytest.approx(9, rel=0.35)


@pytest.mark.full
def test_the_labels_of_a_device_are_linear_in_its_inputs() -> None:
    dataset = Synthetic(num_devices=1, total=3000).load()
    x = torch.cat([dataset.x_train, torch.ones(len(dataset.x_train), 1)], 1)
    weight = torch.zeros(61, 10, requires_grad=True)
    for _ in range(300):
        loss = torch.nn.functional.cross_entropy(x @ weight, dataset.y_train)
        (gradient,) = torch.autograd.grad(loss, weight)
        weight = (weight - 0.5 * gradient).detach().requires_grad_()
    assert float(((x @ weight).argmax(1) == dataset.y_train).float().mean()) > 0.95


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"alpha": -1}, "Synthetic.alpha"),
        ({"beta": -1}, "Synthetic.beta"),
        ({"num_devices": 0}, "Synthetic.num_devices"),
        ({"total": 99}, "dataset.total"),
    ],
)
def test_ranges(changes: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}="):
        Synthetic(**changes)
