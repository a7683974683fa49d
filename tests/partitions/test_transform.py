"""Images by the entries of a bank: which they are, what they cost, and that labels stay."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from corruption_values import SIDE, VALUES, changed, pictures, severities, values
from fakes import fake
from PIL import Image
from refusals import refused

from fedclust.core.federation import build
from fedclust.helpers.errors import ConfigError
from fedclust.partitions.class_transform import ClassTransform
from fedclust.partitions.corruptions import (
    CORRUPTIONS,
    contrast,
    corrupted,
    defocus_blur,
    elastic,
    gaussian_noise,
    shot_noise,
    zoom_blur,
)
from fedclust.partitions.iid import IID
from fedclust.partitions.label_map import LabelMap
from fedclust.partitions.rotated import Rotated
from fedclust.partitions.transform import Transform

DEFINED = [(n, c) for n in sorted(CORRUPTIONS) for c in SIDE if severities(n, c)]
# whose published severities trade one thing against another, or that meet the waves in step
UNORDERED = {"elastic", "glass_blur", "saturate", "zoom_blur"}
QUARTERS = ("identity", "rotate 90", "rotate 180", "rotate 270")


@pytest.mark.thinned
@pytest.mark.parametrize(("name", "channels"), DEFINED, ids=[f"{n}-{c}" for n, c in DEFINED])
def test_corruptions_keep_their_bits_and_grow_with_severity(name: str, channels: int) -> None:
    known = json.loads(VALUES.read_text())[f"{name} {channels}"]
    assert values(name, channels) == known
    change = [size for _, size in known]
    assert min(change) > 0
    if name not in UNORDERED:
        assert all(mild < strong for mild, strong in pairwise(change))


class Script:
    """A generator whose draws are known: parts of the golden section, one after the other."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return (np.arange(np.prod(shape)) * 0.6180339887498949 % 1).reshape(shape)

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        return low + (high - low) * self.random(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        return low + np.floor(self.random(shape) * (high - low)).astype(int)

    def choice(self, among: tuple[int, int], size: int | None = None) -> int | np.ndarray:
        return self.sign if size is None else np.full(size, self.sign)


RELEASED = json.loads(Path(__file__).with_name("released_corruptions.json").read_text())


@pytest.mark.thinned
@pytest.mark.parametrize("case", RELEASED)
def test_corruptions_are_those_of_the_released_code(case: str) -> None:
    """Twelve values per severity, computed by the released code with the draws of `Script`: that of
    MNIST-C (commit bba57e4) for one channel, of CIFAR-10-C (commit 8190fe3) for three, with the
    Gaussian filter and affine maps of scikit-image 0.16.2, scipy 1.17.1 and OpenCV 5.0.0.
    """
    name, channels = case.split()
    image = pictures(int(channels), 1).numpy() / 255
    script = Script(-1 if name in {"tilt", "translate"} else 1)  # draws the other way there
    for severity, wanted in enumerate(RELEASED[case], 1):
        got = 255 * corrupted(image, CORRUPTIONS[name], severity, [script]).ravel()
        assert got[np.arange(12) * 7919 % got.size] == pytest.approx(wanted, abs=0.006)


def test_noise_belongs_to_the_image_and_the_data_seed() -> None:
    images = pictures(1).repeat(60, 1, 1, 1)  # more than are changed at once
    noisy = changed("gaussian_noise 3", images)
    assert torch.equal(changed("gaussian_noise 3", images[:7]), noisy[:7])
    assert not torch.equal(noisy[:12] - images[:12], noisy[12:24] - images[:12])
    assert not torch.equal(changed("gaussian_noise 3", images[:7], data_seed=1), noisy[:7])
    assert not torch.equal(changed("speckle_noise 3", images[:7]), noisy[:7])


def test_noise_has_the_size_that_its_constants_say() -> None:
    rngs = [np.random.default_rng(i) for i in range(200)]
    grey = np.full((200, 1, 28, 28), 0.5)
    count = grey.size
    std = float((gaussian_noise(grey, 0.08, rngs) - grey).std())
    assert abs(std - 0.08) < 5 * 0.08 / (2 * count) ** 0.5
    shot = shot_noise(grey, 60, rngs)
    assert abs(float(shot.mean()) - 0.5) < 5 * (0.5 / 60 / count) ** 0.5
    assert abs(float(shot.var()) - 0.5 / 60) < 5 * 0.5 / 60 * (2.1 / count) ** 0.5
    hit = corrupted(grey, CORRUPTIONS["impulse_noise"], 5, rngs)
    assert abs(float((hit == 0).mean()) - 0.135) < 5 * (0.135 * 0.865 / count) ** 0.5
    assert abs(float((hit == 1).mean()) - 0.135) < 5 * (0.135 * 0.865 / count) ** 0.5


def test_corruptions_that_do_nothing_are_the_identity() -> None:
    v = pictures(3).numpy() / 255
    rngs = [np.random.default_rng(i) for i in range(len(v))]
    assert np.array_equal(gaussian_noise(v, 0.0, rngs), v)
    assert np.allclose(contrast(v, 1.0, rngs), v, atol=1e-15)
    assert np.allclose(defocus_blur(v, (0.5, 1e-3), rngs), v, atol=1e-12)
    assert np.allclose(zoom_blur(v, (1.0,), rngs), v, atol=1e-12)
    assert np.allclose(elastic(v, (0.0, 0.0, 0.0), rngs), v, atol=1e-9)
    flat = np.full((1, 3, 32, 32), 0.25)
    assert np.allclose(defocus_blur(flat, (1.5, 0.1), []), flat), "filters keep the mean"
    assert np.allclose(zoom_blur(flat, (1.1, 1.2), []), flat)


def test_brightness_and_saturation_by_hand() -> None:
    pixel = np.array([0.4, 0.2, 0.1]).reshape(1, 3, 1, 1)
    brighter = CORRUPTIONS["brightness"].apply(pixel, 0.2, [])
    assert brighter.ravel() == pytest.approx([0.6, 0.3, 0.15]), "value 0.4 becomes 0.6"
    greyer = CORRUPTIONS["saturate"].apply(pixel, (0.5, 0.0), [])
    # saturation 0.75 becomes 0.375: the least channel 0.4 (1 - 0.375), the middle one in proportion
    assert greyer.ravel() == pytest.approx([0.4, 0.4 * (1 - 0.375 * 2 / 3), 0.25])
    assert CORRUPTIONS["saturate"].apply(pixel, (1.0, 0.0), []).ravel() == pytest.approx(
        pixel.ravel()
    )
    black = np.zeros((1, 3, 1, 1))
    assert CORRUPTIONS["brightness"].apply(black, 0.2, []).ravel() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("angle", [15, 72, 105, 195, 275, -30])
def test_rotations_are_those_of_pillow(angle: int) -> None:
    images = pictures(1)
    turned = changed(f"rotate {angle}", images)
    for image, got in zip(images, turned, strict=True):
        wanted = np.asarray(Image.fromarray(image[0].numpy()).rotate(angle))
        assert np.array_equal(got[0].numpy(), wanted)


def test_quarter_turns_are_those_of_rotated() -> None:
    dataset = fake(50, 20, shape=(1, 4, 4))
    other = Rotated(num_clients=4, num_rotations=4).pool(dataset)
    pool = Transform(base=IID(num_clients=4), bank=QUARTERS).pool(dataset)
    assert len(pool.x) == 280
    for g in range(4):
        rows = torch.arange(70) * 4 + g
        assert torch.equal(pool.inputs(rows), other.inputs(torch.arange(70) + 70 * g))
        assert torch.equal(pool.y[rows], other.y[:70])


def test_colours_and_tints() -> None:
    dataset = fake(20, 8, shape=(1, 3, 3))
    bank = ["colour red", "tint blue", "rotate 90 + colour green", "identity"]
    pool = Transform(base=IID(num_clients=4), bank=bank).pool(dataset)
    grey = torch.cat([dataset.x_train, dataset.x_test])[:, 0]
    white = int(dataset.x_train.max())
    red, blue, green, plain = (pool.x[pool.images(torch.arange(28) * 4 + g)] for g in range(4))
    assert pool.shape == (3, 3, 3)
    assert (red[:, 0] == white).all()
    assert torch.equal(red[:, 1], grey)
    assert torch.equal(blue[:, 2], grey)
    assert (blue[:, :2] == 0).all()
    assert torch.equal(green[:, 0], torch.rot90(grey, 1, (1, 2)))
    assert (green[:, 1] == white).all()
    assert all(torch.equal(plain[:, c], grey) for c in range(3))


def test_one_copy_of_the_images_per_entry_and_none_of_the_labels_change() -> None:
    dataset = fake(300, 60, shape=(1, 6, 6))
    for bank, copies in [
        (("identity", "rotate 45"), 2),
        (("rotate 30", "rotate 45", "contrast 2"), 3),
    ]:
        fed = build(dataset, Transform(base=IID(num_clients=9), bank=bank), 0)
        assert len(fed.pool.x) == copies * 360
        assert fed.group.bincount().max() - fed.group.bincount().min() <= 1
        y = torch.cat([dataset.y_train, dataset.y_test])
        for split in (fed.train, fed.test):
            assert torch.equal(fed.pool.y[split.index.long()], y[split.index.long() // len(bank)])
            owner, _ = split.owner_and_place()
            assert torch.equal(split.index.long() % len(bank), fed.group[owner])


def test_the_images_know_no_seed_of_the_run() -> None:
    dataset = fake(40, 20, shape=(1, 5, 5))
    bank = ("identity", "gaussian_noise 2")
    one, two = (Transform(base=IID(num_clients=4), bank=bank) for _ in range(2))
    assert one.pool(dataset).digest == two.pool(dataset).digest
    other = Transform(base=IID(num_clients=4), bank=bank, data_seed=1)
    assert other.pool(dataset).digest != one.pool(dataset).digest


def test_only_images_of_the_chosen_classes_differ() -> None:
    dataset = fake(100, 50, shape=(1, 4, 4))
    partition = ClassTransform(base=IID(num_clients=8), bank=QUARTERS, classes=[2, 7])
    pool = partition.pool(dataset)
    x, y = (
        torch.cat([dataset.x_train, dataset.x_test]),
        torch.cat([dataset.y_train, dataset.y_test]),
    )
    assert len(pool.x) == 150 + 3 * 30, "a copy of two classes for every entry that changes them"
    for g in range(4):
        seen = pool.x[pool.images(torch.arange(150) * 4 + g)]
        own = (y == 2) | (y == 7)
        assert torch.equal(seen[~own], x[~own])
        assert torch.equal(seen[own], torch.rot90(x[own], g, (2, 3)))
    assert ClassTransform(base=IID(num_clients=8), classes=4).chosen(dataset).shape == (4,)
    drawn = {
        tuple(ClassTransform(base=IID(num_clients=8), data_seed=s).chosen(dataset).tolist())
        for s in range(5)
    }
    assert len(drawn) > 1


def test_label_maps_on_corrupted_images_have_the_labels_as_groups() -> None:
    """FedRC's federation: corruptions must not split the groups, which are the label maps."""
    dataset = fake(120, 60, shape=(1, 6, 6))
    base = Transform(base=IID(num_clients=12), bank=("identity", "contrast 5"))
    fed = build(dataset, LabelMap(base=base, maps="fedrc"), 0)
    assert len(fed.pool.x) == 360
    assert fed.pool.concepts == 3
    assert fed.group.bincount().tolist() == [4, 4, 4]
    inner = torch.stack([fed.train.of_client(i)[0] // 3 % 2 for i in range(12)])
    assert inner.bincount().tolist() == [6, 6]


def test_what_does_not_fit_is_one_line() -> None:
    base = IID(num_clients=4)
    for text in ("rotat 90", "rotate x", "rotate", "contrast", "contrast 6", "inverse 2", "colour"):
        with refused(ConfigError, rf"partition.bank={text} is not allowed"):
            Transform(base=base, bank=["identity", text])
    for bank in (["identity"], ["rotate 10", "rotate 10"], []):
        with pytest.raises(ConfigError, match="two changes of images or more, each once"):
            Transform(base=base, bank=bank)
    grey, flat = fake(10, 10), fake(10, 10, shape=(5,))
    with pytest.raises(ConfigError, match=r"bank=fog 2 .* 3 channels, and .*dataset=fake have 1"):
        Transform(base=base, bank=["identity", "fog 2"]).pool(grey)
    with pytest.raises(ConfigError, match=r"fog 2 \+ colour red .* 3 channels"):
        Transform(base=base, bank=["identity", "fog 2 + colour red"]).pool(grey)
    with pytest.raises(ConfigError, match=r"partition=transform .* 8-bit images .* shape \(5,\)"):
        Transform(base=base).pool(flat)
    with pytest.raises(ConfigError, match=r"partition.bank=rotate .* no square images"):
        Transform(base=base).pool(fake(10, 10, shape=(1, 2, 3)))
    with pytest.raises(ConfigError, match=r"dataset.normalise=pixel"):
        Transform(base=base).pool(fake(10, 10, per_pixel=True))
    for classes in (0, 11, [10], []):
        with pytest.raises(ConfigError, match=r"partition.classes="):
            ClassTransform(base=base, classes=classes).pool(grey)
