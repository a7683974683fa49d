import numpy as np
import pytest
import torch
from refusals import refused

from fedclust.datasets.normalise import WORDS, affine, check_word, moments
from fedclust.helpers.errors import ConfigError


@pytest.fixture
def images() -> torch.Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (5000, 3, 4, 4), dtype=torch.uint8, generator=draw)


def test_moments_equal_numpy_across_chunks(images: torch.Tensor) -> None:
    raw = images.numpy().astype(np.float64)
    mean, std = moments(images, per_channel=False)
    np.testing.assert_allclose(mean, raw.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, raw.std(0), rtol=1e-9)
    mean, std = moments(images, per_channel=True)
    np.testing.assert_allclose(mean.squeeze(), raw.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std.squeeze(), raw.std((0, 2, 3)), rtol=1e-9)


def test_every_word_means_its_formula(images: torch.Tensor) -> None:
    raw = images.numpy().astype(np.float64)

    def seen(word: str, *constants: tuple[float, ...]) -> torch.Tensor:
        scale, shift = affine(word, images, *constants)
        assert scale.dtype == shift.dtype == torch.float32
        return images * scale + shift

    np.testing.assert_allclose(seen("unit"), raw / 255, atol=1e-6)
    np.testing.assert_allclose(seen("inverted"), 1 - raw / 255, atol=1e-6)
    np.testing.assert_allclose(seen("pixel"), (raw - raw.mean(0)) / (raw.std(0) + 0.001), atol=1e-5)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    expected = (raw / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(seen("mean_std", mean, std), expected, atol=1e-5)
    own = seen("mean_std").double()
    np.testing.assert_allclose(own.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(own.std((0, 2, 3), correction=0), 1, atol=1e-5)


def test_a_constant_feature_becomes_zero() -> None:
    features = torch.tensor([[1.0, 7.0], [3.0, 7.0]])
    scale, shift = affine("mean_std", features)
    torch.testing.assert_close(features * scale + shift, torch.tensor([[-1.0, 0.0], [1.0, 0.0]]))
    for size in (254, 499, 618):  # so many squares add up to a little more
        scale, _ = affine("mean_std", torch.full((size, 1), 1 / 3))
        assert scale.tolist() == [1]
    scale, _ = affine("mean_std", 1 + 1e-6 * torch.arange(64.0)[:, None])
    assert float(scale) == pytest.approx(1e6 / np.arange(64).std(), rel=0.02)


def test_an_unknown_word_is_one_line_with_the_key() -> None:
    with refused(ConfigError, r"^dataset.normalise=zscore is not allowed: one of mean_std, unit"):
        check_word("zscore", WORDS)
