from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from toys import pool_of

from fedclust.core.federation import build
from fedclust.core.types import Dataset, Pool
from fedclust.datasets.npz import Npz
from fedclust.datasets.view import ImageToInput, view_of
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.rng import Stream
from fedclust.partitions.iid import IID
from fedclust.partitions.rotated import Rotated

PLAIN = ImageToInput(crop=4, standardise=False, augment="none")
FULL = ImageToInput(crop=4, standardise=True, augment="crop_flip_contrast")


def pool(view: ImageToInput | None, num_examples: int = 6, side: int = 7) -> Pool:
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (num_examples, 3, side, side), dtype=torch.uint8, generator=draw)
    return pool_of(x, torch.arange(num_examples), num_examples, 1 / 255, view=view)


def keys(rows: int) -> Tensor:
    return Stream.of(0, "train", 0).keys(torch.arange(rows))


def test_outside_training_a_model_sees_the_middle() -> None:
    data = pool(PLAIN, side=8)
    assert data.shape == (3, 4, 4)
    seen = data.inputs(torch.tensor([[2, 5], [0, 0]]))
    assert seen.shape == (2, 2, 3, 4, 4)
    torch.testing.assert_close(seen[0, 1], data.x[5, :, 2:6, 2:6] / 255)
    assert torch.equal(
        data.training_inputs(torch.tensor([[2, 5]]), keys(1), 3),
        data.inputs(torch.tensor([[2, 5]])),
    )


def test_every_image_gets_mean_0_and_std_1_and_one_of_one_colour_stays_0() -> None:
    data = pool(replace(PLAIN, standardise=True))
    data.x[3] = 77
    seen = data.inputs(torch.arange(6))
    others = torch.tensor([0, 1, 2, 4, 5])
    torch.testing.assert_close(seen.mean((1, 2, 3)), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen[others].std((1, 2, 3), correction=0), torch.ones(5))
    assert float(seen[3].abs().max()) < 1e-4


@pytest.mark.full
def test_a_drawn_crop_is_a_window_of_its_image_or_its_mirror_image_and_all_are_drawn() -> None:
    data = pool(replace(PLAIN, augment="crop_flip"))
    rows = 300
    index = torch.arange(rows).remainder(6).unsqueeze(1)
    seen = data.training_inputs(index, keys(rows), 0)
    found = set()
    for row in range(rows):
        image = data.x[int(index[row, 0])] / 255
        places = [
            (top, left, flipped)
            for top in range(4)
            for left in range(4)
            for flipped in (False, True)
            if torch.allclose(
                image[:, top : top + 4, left : left + 4].flip(2)
                if flipped
                else image[:, top : top + 4, left : left + 4],
                seen[row, 0],
            )
        ]
        assert len(places) == 1
        found.update(places)
    assert len(found) == 32  # each of 4 x 4 x 2 has missed 300 draws with a probability of 1e-4


def test_contrast_keeps_the_mean_of_a_channel_and_scales_the_distances_from_it() -> None:
    changed = pool(replace(PLAIN, crop=None, augment="crop_flip_contrast"))
    flipped = pool(replace(PLAIN, crop=None, augment="crop_flip"))
    index = torch.arange(6).expand(50, 6)
    got, base = (p.training_inputs(index, keys(50), 1).flatten(0, 1) for p in (changed, flipped))
    mean = base.mean((2, 3), keepdim=True)
    torch.testing.assert_close(got.mean((2, 3), keepdim=True), mean)
    factor = ((got - mean) / (base - mean)).flatten(1).median(1).values
    torch.testing.assert_close(
        got, mean + factor.view(-1, 1, 1, 1) * (base - mean), atol=1e-4, rtol=1e-4
    )
    assert 0.2 <= float(factor.min()) < 0.3
    assert 1.7 < float(factor.max()) <= 1.8


def test_what_an_example_becomes_depends_on_its_row_step_and_place_only() -> None:
    data = pool(FULL)
    index = torch.tensor([[0, 1, 2], [3, 4, 5]])
    seen = data.training_inputs(index, keys(2), 4)
    alone = data.training_inputs(index[1:, :2], keys(2)[1:], 4)
    torch.testing.assert_close(alone[0], seen[1, :2], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(seen, data.training_inputs(index, keys(2), 5))
    assert not torch.allclose(
        seen[0, 0], data.training_inputs(torch.zeros_like(index), keys(2), 4)[1, 0]
    )
    again = data.training_inputs(torch.zeros_like(index), keys(2), 4)
    assert not torch.allclose(again[0, 0], again[0, 1])


def dataset(view: ImageToInput | None) -> Dataset:
    x = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
    return Dataset(
        name="toy",
        x_train=x,
        y_train=torch.arange(40) % 10,
        x_test=x[:8],
        y_test=torch.arange(8),
        num_classes=10,
        scale=torch.tensor(1.0),
        shift=torch.tensor(0.0),
        view=view,
    )


@pytest.mark.parametrize("partition", [IID(num_clients=4), Rotated(num_clients=4, num_rotations=2)])
def test_a_partition_hands_the_view_on(partition: IID | Rotated) -> None:
    assert build(dataset(FULL), partition, 0).pool.view == FULL
    assert build(dataset(FULL), partition, 0).pool.to(torch.device("cpu")).shape == (3, 4, 4)
    assert build(dataset(None), partition, 0).pool.view is None


def test_npz_carries_the_view_out(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 9, 9, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "a.npz",
        x_train=images,
        y_train=np.arange(20),
        x_test=images,
        y_test=np.arange(20),
    )
    made = Npz(
        path=str(tmp_path / "a.npz"), normalise="per_image", crop=5, augment="crop_flip"
    ).load()
    assert made.view == ImageToInput(crop=5, standardise=True, augment="crop_flip")
    assert Npz(path=str(tmp_path / "a.npz")).load().view is None
    flat = images.reshape(20, -1)
    np.savez(
        tmp_path / "b.npz", x_train=flat, y_train=np.arange(20), x_test=flat, y_test=np.arange(20)
    )
    with pytest.raises(
        ConfigError, match=r"dataset.crop=5 is not allowed: something for images only"
    ):
        Npz(path=str(tmp_path / "b.npz"), normalise="per_image", crop=5).load()


def test_options_that_are_none_or_do_not_go_together() -> None:
    for changes, message in (
        ({"crop": 0}, r"crop=0 is not allowed: an integer"),
        ({"augment": "cutout"}, r"augment=cutout is not allowed: one of none, crop_flip"),
        (
            {"crop": 4, "normalise": "pixel"},
            r"^dataset.normalise=pixel is not allowed: another one",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            Npz(path="x.npz", **changes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^dataset.crop=33 is not allowed: at most 32"):
        view_of((3, 32, 32), "unit", 33, "none")
    assert view_of((3, 32, 32), "unit", None, "none") is None
