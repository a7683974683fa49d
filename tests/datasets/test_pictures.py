"""What a viewer shows of a picture is what is read, or it is refused in one line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from fedclust.datasets.image_folder import ImageFolder
from fedclust.datasets.pictures import picture
from fedclust.helpers.errors import DataError

GREY = np.arange(16, dtype=np.uint8).reshape(4, 4) * 17
COLOUR = np.stack([GREY, GREY[::-1], GREY.T], axis=-1)


def saved(image: Image.Image, file: Path, **options: Any) -> str:
    image.save(file, **options)
    return str(file)


def test_sixteen_bits_are_those_of_eight(tmp_path: Path) -> None:
    wide = Image.fromarray(GREY.astype(np.uint16) * 257)
    for name in ("a.png", "a.tiff"):
        values = picture(saved(wide, tmp_path / name), None, grayscale=True)
        np.testing.assert_array_equal(values[..., 0], GREY)
    colour = picture(str(tmp_path / "a.png"), None, grayscale=False)
    np.testing.assert_array_equal(colour, np.repeat(GREY[..., None], 3, axis=-1))


def test_a_turned_picture_stands_upright(tmp_path: Path) -> None:
    tall = Image.fromarray(np.repeat(np.repeat(COLOUR[:2], 16, 0), 16, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    file = saved(tall, tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(
        picture(file, None, grayscale=False), np.rot90(np.asarray(tall), -1)
    )


def test_colours_below_full_transparency_are_not_seen(tmp_path: Path) -> None:
    alpha = np.where(GREY > 100, 255, 0).astype(np.uint8)
    white = np.where(alpha[..., None] == 0, 255, COLOUR)
    image = Image.fromarray(np.dstack([COLOUR, alpha]))
    np.testing.assert_array_equal(
        picture(saved(image, tmp_path / "a.png"), None, grayscale=False), white
    )
    grey = Image.fromarray(np.dstack([GREY, alpha]), mode="LA")
    values = picture(saved(grey, tmp_path / "b.png"), None, grayscale=True)
    np.testing.assert_array_equal(values[..., 0], np.where(alpha == 0, 255, GREY))
    half = Image.new("RGBA", (2, 2), (0, 0, 0, 51))
    assert picture(saved(half, tmp_path / "c.png"), None, grayscale=False).max() == 204


def test_palettes_and_printers_colours(tmp_path: Path) -> None:
    flat = Image.fromarray(COLOUR).quantize(16)
    shown = np.asarray(flat.convert("RGB"))
    np.testing.assert_array_equal(
        picture(saved(flat, tmp_path / "a.png"), None, grayscale=False), shown
    )
    clear = saved(flat, tmp_path / "b.png", transparency=3)
    values = picture(clear, None, grayscale=False)
    np.testing.assert_array_equal(values, np.where((np.asarray(flat) == 3)[..., None], 255, shown))
    ink = Image.new("CMYK", (2, 2), (0, 255, 255, 0))
    assert picture(saved(ink, tmp_path / "a.tiff"), None, grayscale=False)[0, 0].tolist() == [
        255,
        0,
        0,
    ]


def folder(root: Path) -> Path:
    for part in ("train", "test"):
        for name in ("a", "b"):
            (root / part / name).mkdir(parents=True)
            Image.fromarray(GREY).save(root / part / name / "0.png")
    return root


@pytest.mark.parametrize("kind", ["float", "whole", "pages", "frames"])
def test_pictures_that_viewers_show_in_many_ways_are_refused(kind: str, tmp_path: Path) -> None:
    file = folder(tmp_path) / "train" / "a" / ("1.gif" if kind == "frames" else "1.tiff")
    more = [Image.fromarray(GREY[::-1])]
    if kind in ("pages", "frames"):
        Image.fromarray(GREY).save(file, save_all=True, append_images=more)
        says = "it holds 2 pages or frames"
    else:
        values = GREY.astype(np.float32 if kind == "float" else np.int32)
        Image.fromarray(values).save(file)
        says = "its numbers are of mode"
    with refused(DataError, rf"cannot read .*{file.name} \({says}"):
        ImageFolder(path=str(tmp_path), size=4).load()


def test_hidden_folders_are_no_classes_and_are_told(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "train" / ".thumbs").mkdir()
    (root / "train" / "a" / ".cache").mkdir()
    for place in (".thumbs", "a/.cache"):
        Image.fromarray(GREY).save(root / "train" / place / "9.png")
    (root / "train" / "b" / ".DS_Store").write_text("")
    Image.fromarray(GREY).save(root / "test" / "loose.png")
    dataset = ImageFolder(path=str(root), size=4).load()
    assert dataset.y_train.tolist() == [0, 1]
    assert dataset.names.classes == ("a", "b")
    (remark,) = dataset.remarks
    assert "passed over 4 hidden or loose files and folders, such as train/.thumbs" in remark


def test_pipes_and_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path)
    os.mkfifo(root / "train" / "a" / "pipe.png")
    with pytest.raises(DataError, match=r"pipe.png is no picture"):
        ImageFolder(path=str(root), size=4).load()
    (root / "train" / "a" / "pipe.png").unlink()
    (root / "train" / "a" / "b").symlink_to(root / "train" / "b")
    (root / "train" / "b" / "a").symlink_to(root / "train" / "a")
    with pytest.raises(DataError, match=r"by a link: remove one of them"):
        ImageFolder(path=str(root), size=4).load()


def test_twelve_bits_in_sixteen_keep_their_greys(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part in ("train", "test"):
        for name, level in (("a", 1000), ("b", 1100)):
            (tmp_path / part / name).mkdir(parents=True)
            values = rng.integers(level - 20, level + 21, (4, 4)).astype(np.uint16)
            values[0, 0] = 4095 if part == "train" else 9000  # beyond what training pictures use
            Image.fromarray(values).save(tmp_path / part / name / "0.png")
    dataset = ImageFolder(path=str(tmp_path), size=4, grayscale=True).load()
    for x in (dataset.x_train, dataset.x_test):
        low, high = x[:, 0].flatten(1)[:, 1:]
        assert 61 <= low.min() < low.max() <= 64  # 980 and 1020, times 255 / 4095
        assert 67 <= high.min() < high.max() <= 70  # 1080 and 1120
        assert x[0, 0, 0, 0] == 255
    Image.fromarray(values * 7).save(tmp_path / "train" / "a" / "1.png")  # 16 bits are used
    dataset = ImageFolder(path=str(tmp_path), size=4, grayscale=True).load()
    assert dataset.x_test[0, 0, 1].max() == 4
