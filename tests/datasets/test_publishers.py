"""Natural federations from their publishers' files."""

from __future__ import annotations

import io
import tarfile
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused

from fedclust.core.federation import read_table
from fedclust.datasets import publishers
from fedclust.datasets.csv import Csv
from fedclust.datasets.npz import Npz
from fedclust.datasets.publishers import PUBLISHERS, bring
from fedclust.helpers.errors import DataError


@pytest.fixture
def natural(data_root: Path) -> Path:
    """The folder with a folder for each federation."""
    if not (data_root / "natural").is_dir():
        pytest.skip(f"no {data_root / 'natural'}")
    return data_root / "natural"


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "_same", lambda *_: None)


def test_four_hospitals(natural: Path, tmp_path: Path) -> None:
    (file,) = bring("heart_disease", tmp_path, natural / "heart_disease")
    table = pd.read_csv(file)
    assert table["hospital"].value_counts(sort=False).tolist() == [303, 261, 46, 130]
    complete = pd.read_csv(natural / "heart_disease" / "heart_disease_4_hospitals.csv")
    pd.testing.assert_frame_equal(table, complete)
    data = Csv(path=str(file), label="disease", client="hospital").load()
    assert data.num_classes == 2
    assert data.shape == (10,)
    # the publisher's own files: no first line, gaps are ?, a place each
    raw = pd.read_csv(natural / "heart_disease" / "heart_disease_4_hospitals_raw.csv")
    theirs = tmp_path / "archive"
    theirs.mkdir()
    names = {"cleveland": "cleveland", "hungarian": "hungary"}
    for place in ("cleveland", "hungarian", "switzerland", "va"):
        rows = raw[raw["hospital"] == names.get(place, place)].drop(columns="hospital")
        to = theirs / f"processed.{place}.data"
        rows.astype(object).to_csv(to, header=False, index=False, na_rep="?")
    (again,) = bring("heart_disease", tmp_path / "again", theirs)
    assert again.read_bytes() == file.read_bytes()
    (theirs / "processed.va.data").write_text("63,1,1,145,233,1,2,150,0,2.3,3,0,6,0\n")
    with pytest.raises(DataError, match=r"heart_disease holds other data than its publisher's: SH"):
        bring("heart_disease", tmp_path, theirs)
    assert again.read_bytes() == file.read_bytes()
    (theirs / "processed.va.data").unlink()
    with pytest.raises(DataError, match=r"archive lacks what is needed: processed.cleveland.data"):
        bring("heart_disease", tmp_path, theirs)


@pytest.mark.full
def test_persons_with_a_phone_keep_their_windows(natural: Path, tmp_path: Path) -> None:
    arrays, owners = bring("hapt", tmp_path, natural / "hapt")
    assert Npz(path=str(arrays), normalise="pixel").load().shape == (1, 6, 128)
    train, test, _ = read_table(owners)
    assert len(train.count) == 30
    assert (len(train.index), len(test.index)) == (7477, 1670)


@pytest.mark.usefixtures("unchecked")
def test_flights_that_arrived_are_late_after_fifteen_minutes(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            **{"year": 2013, "month": [1, 1, 12], "day": [1, 2, 31]},  # a Tuesday is 1
            **{"arr_delay": [15, None, 16], "carrier": ["UA", "AA", "B6"]},
            **{"origin": ["EWR", "JFK", "LGA"], "hour": [5, 6, 7], "distance": [100, 200, 300]},
        }
    )
    (tmp_path / "in").mkdir()
    table.to_csv(tmp_path / "in" / "flights.csv")
    (file,) = bring("flights", tmp_path, tmp_path / "in")
    assert file.read_text().splitlines()[1:] == ["UA,1,1,5,100,1,0,0,0", "B6,12,1,7,300,0,0,1,1"]


def recording(hertz: float, samples: int = 3000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        tone = 8000 * np.sin(2 * np.pi * hertz * np.arange(samples) / 8000)
        sound.writeframes(tone.astype("<i2").tobytes())
    return file.getvalue()


@pytest.mark.usefixtures("unchecked")
def test_spoken_digits_are_pictures_of_their_pitch(tmp_path: Path) -> None:
    def packed(*_: Any, **__: Any) -> io.BytesIO:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, hertz in (("7_zoe_5", 1000), ("0_zoe_4", 1000), ("1_al_12", 3000)):
                member = tarfile.TarInfo(f"fsdd-1.0.10/recordings/{name}.wav")
                member.size = len(recording(hertz))
                tar.addfile(member, io.BytesIO(recording(hertz)))
        archive.seek(0)
        return archive

    arrays, owners = bring("fsdd", tmp_path, download=packed)
    with np.load(arrays) as made:
        assert made["x_train"].shape == (2, 32, 32)
        assert made["y_train"].tolist() == [1, 7]
        assert made["y_test"].tolist() == [0]
        loudest = made["x_train"].argmax(1)
    # mel(1000 Hz) is 1000 of 2146 at 4000 Hz: band 14 of 33 steps, counted from 0
    assert set(loudest[1].tolist()) == {14}
    assert set(loudest[0].tolist()) == {28}
    assert owners.read_text().splitlines()[1:] == ["train,0,0", "train,1,1", "test,1,2"]


def test_stretches_of_a_phone_become_windows_of_one_part(tmp_path: Path) -> None:
    folder = tmp_path / "RawData"
    folder.mkdir()
    # activity 2 from row 11 to 1010, a change of posture, and one that is too short
    (folder / "labels.txt").write_text("1 3 2 11 1010\n1 3 8 1011 2000\n1 3 5 2001 2050\n")
    time = np.arange(2050.0)
    for place, kind in enumerate(("acc", "gyro")):
        series = np.stack([time + 10_000 * (3 * place + axis) for axis in range(3)], 1)
        np.savetxt(folder / f"{kind}_exp01_user03.txt", series)
    arrays, owners = bring("hapt", tmp_path, tmp_path)
    with np.load(arrays) as made:
        assert made["x_train"].shape == (11, 6, 128)  # of 800 samples
        assert made["x_test"].shape == (2, 6, 128)  # of 200
        assert made["x_train"][1, 4].tolist() == (np.arange(74, 202) + 40_000).tolist()
        assert made["x_train"].max(-1)[-1, 0] < made["x_test"][0, 0, 0] == 810
        assert made["y_train"].tolist() == [1] * 11
    assert owners.read_text().splitlines()[1] == "train,2,0"


def test_a_download_that_is_something_else_is_one_line(tmp_path: Path) -> None:
    def opens(content: bytes) -> Callable[..., io.BytesIO]:
        return lambda *_, **__: io.BytesIO(content)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("recordings/0_al_0.wav", recording(500))
    for download, says in (
        (fails, r"fsdd: download from .*tar.gz failed \(no network\): check the network, or fetch"),
        (opens(b"<html>"), r"fsdd: download from .* failed \(.*\): check the network"),
        (opens(archive.getvalue()), r"fsdd holds other data than its publisher's: SHA-256 of the"),
    ):
        with refused(DataError, says):
            bring("fsdd", tmp_path, download=download)
    for name in (name for name, one in PUBLISHERS.items() if not one.urls):
        with pytest.raises(DataError, match=rf"{name}: no address is known .* --from FOLDER names"):
            bring(name, tmp_path, download=fails)
    with pytest.raises(DataError, match=r"nowhere is no folder"):
        bring("flights", tmp_path, tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
