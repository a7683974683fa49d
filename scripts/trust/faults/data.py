"""Data that are damaged, wrong, or not the same in the second half of a job or after its end."""

from __future__ import annotations

import io
import os
import random
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from faults.case import Called, Case, Ended, called, forked
from faults.damages import damage
from faults.inputs import DOES, METHOD
from faults.jobs import composed, contents, die_after, played, signature
from fedclust.config.build import build
from fedclust.runtime.folder import RunFolder

Arrays = dict[str, npt.NDArray[Any]]
# by kind: the faults by name, and what writes one into a folder and says what the command is told
Faults = Mapping[str, tuple[Mapping[Any, Any], Callable[[Any, Path], Sequence[str]]]]
NPZ = ("dataset=npz", "dataset.path=mine.npz")
TABLE = ("dataset=csv", "dataset.path=mine.csv", "partition=iid", "partition.num_clients=4")
COMMAND = ("run", "progress=false", "threads=1", "rounds=2", "model=linear", "hydra.run.dir=job")


def arrays() -> Arrays:
    """A small data set of four classes."""
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (200, 8, 8), dtype=np.uint8),
        "y_train": np.arange(200) % 4,
        "x_test": rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        "y_test": np.arange(40) % 4,
    }


def save(folder: Path, given: Mapping[str, npt.NDArray[Any]]) -> None:
    """The data set as a file."""
    np.savez(folder / "mine.npz", **given)  # type: ignore[arg-type]


def floats(value: float) -> npt.NDArray[np.float32]:
    """Images of fractions, one pixel of which has a value."""
    x = arrays()["x_train"].astype(np.float32) / 255
    x[5, 3, 3] = value
    return x


def tiny(side: int) -> Arrays:
    """Images of another size."""
    return {"x_train": np.zeros((200, side, side), np.uint8)}


def replaced(name: str, at: int, value: object, kind: type | None = None) -> Arrays:
    """An array with one entry changed."""
    array = arrays()[name].astype(kind or arrays()[name].dtype)
    array[at] = value
    return {name: array}


# what is wrong with the arrays of a file
WRONG: Mapping[str, Callable[[], Arrays]] = {
    "a NaN": lambda: {"x_train": floats(np.nan)},
    "an infinity": lambda: {"x_train": floats(np.inf)},
    "a NaN in the test images": lambda: {"x_test": floats(np.nan)[:40]},
    "fewer labels": lambda: {"y_train": np.zeros(7, np.int64)},
    "more labels": lambda: {"y_train": np.zeros(201, np.int64)},
    "fewer test labels": lambda: {"y_test": np.zeros(3, np.int64)},
    "a negative label": lambda: replaced("y_train", 3, -1),
    "a label of its own in the test": lambda: replaced("y_test", 3, 9),
    "a huge label": lambda: replaced("y_train", 3, 1 << 62),
    "labels of fractions": lambda: replaced("y_train", 3, 1.5, float),
    "a label NaN": lambda: replaced("y_train", 3, np.nan, float),
    "labels of text": lambda: {"y_train": np.array(["a"] * 200)},
    "labels in two columns": lambda: {"y_train": np.zeros((200, 2), np.int64)},
    "labels of objects": lambda: {"y_train": np.array([{}] * 200, dtype=object)},
    "images of objects": lambda: {"x_train": np.array([None] * 200, dtype=object)},
    "images of text": lambda: {"x_train": np.full((200, 8, 8), "a")},
    "images of complex numbers": lambda: {"x_train": np.zeros((200, 8, 8), np.complex64)},
    "images of one number": lambda: {"x_train": np.zeros(200, np.uint8)},
    "images of five dimensions": lambda: {"x_train": np.zeros((200, 1, 1, 8, 8), np.uint8)},
    "a single number": lambda: {"x_train": np.array(3)},
    "larger training images": lambda: tiny(9),
    "no pixels": lambda: tiny(0),
    "no examples": lambda: {"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": np.zeros(0, int)},
    "no test examples": lambda: {"x_test": np.zeros((0, 8, 8), np.uint8), "y_test": np.zeros(0)},
    "numbers too small": lambda: {
        "x_train": floats(0) * np.float32(1e-42),
        "x_test": floats(0)[:40] * np.float32(1e-42),
    },
    "fewer examples than clients": lambda: {
        "x_train": np.zeros((8, 8, 8), np.uint8),
        "y_train": np.arange(8) % 4,
    },
    "one class": lambda: {"y_train": np.zeros(200, np.int64), "y_test": np.zeros(40, np.int64)},
    "numbers too large": lambda: {"x_train": floats(1e38) * 1e38},
}
# what is wrong with targets, by task
TARGETS: Mapping[str, Mapping[str, Callable[[], Arrays]]] = {
    "regression": {
        "text": lambda: {"y_train": np.array(["a"] * 200)},
        "a NaN": lambda: replaced("y_train", 3, np.nan, float),
        "an infinity in the test": lambda: replaced("y_test", 3, np.inf, float),
        "one number": lambda: {"y_train": np.full(200, 1.5)},
        "three dimensions": lambda: {"y_train": np.zeros((200, 1, 1))},
    },
    "multilabel": {
        "classes": lambda: {},
        "fractions": lambda: {"y_train": np.full((200, 2), 0.5)},
        "fewer labels in the test": lambda: {
            "y_train": np.arange(400).reshape(200, 2) % 2,
            "y_test": np.arange(40) % 2,
        },
    },
}
# what is wrong with a user's own table
OWN: Mapping[str, str] = {
    "features too small": "".join(f"{i}e-40,{i % 2}\n" for i in range(100)),
    "a number too large": "".join(f"{i},{i % 2}\n" for i in range(100)) + f"{10**50},0\n",
    "a word among numbers": "".join(f"{i},{i % 2}\n" for i in range(100)) + "1_0,0\n",
    "a gap": "".join(f"{i},{i % 2}\n" for i in range(100)) + ",0\n",
    "dates": "".join(f"2020-01-{i % 30 + 1:02d},{i % 2}\n" for i in range(100)),
    "words": "".join(f"{'abc'[i % 3]},{i % 2}\n" for i in range(100)),
    "hundreds of whole numbers as labels": "".join(f"{i % 7},{i % 300}\n" for i in range(900)),
    "row numbers alone": "".join(f"{i},{i % 2}\n" for i in range(100)),
}
# what is no input, class or client of its own: the heads that follow x and label, the end of a
# row, and what a warning must say
SLIPS: Mapping[str, tuple[str, Callable[[int], object], str]] = {
    "an index": (",Unnamed: 2", lambda i: i, "column Unnamed: 2 numbers the rows"),
    "row numbers in another order": (",nr", lambda i: 37 * i % 100, "column nr numbers the rows"),
    "the label again": (",sick", lambda i: "no" if i % 2 else "yes", "sick repeats the label"),
    "what the label was made of": (",grade", lambda i: i % 2 + i % 7 / 9, "alone tells"),
    "a number of the patient": (",patient_id", lambda i: i * i + 7, "column patient_id, an input"),
}
# what is wrong with a partition's table; the rows are client,split,row
HEAD = "client,split,row\n"
TABLES: Mapping[str, str] = {
    "nothing": "",
    "a head only": HEAD,
    "other columns": "a,b\n1,2\n",
    "text": HEAD + "0,train,abc\n",
    "a fraction": HEAD + "0,train,1.5\n",
    "a gap": HEAD + "0,train,\n",
    "a row too large": HEAD + "0,train,1797\n0,test,0\n",
    "a row of 2^32": HEAD + f"0,train,{1 << 32}\n0,test,0\n",
    "a row of 2^63": HEAD + f"0,train,{1 << 63}\n0,test,0\n",
    "a negative row": HEAD + "0,train,-1\n0,test,0\n",
    "a row twice": HEAD + "0,train,1\n0,train,1\n0,test,0\n",
    "a negative client": HEAD + "-5,train,1\n0,test,0\n",
    "a huge client": HEAD + "1000000000000,train,1\n0,test,0\n",
    "a split of another name": HEAD + "0,learn,1\n0,test,0\n",
    "a missing client": HEAD + "0,train,1\n9,train,2\n0,test,0\n",
    "bytes": "\x00\x01\x02",
    "quotes": HEAD + '0,"train,1\n',
}


def refused(write: Callable[[Path], Sequence[str]], folder: Path) -> tuple[str, str]:
    """Run on files that have to be refused; nothing is left then."""
    given = write(folder)
    own = any(one.startswith("model=") for one in given)
    command = [one for one in COMMAND if not (own and one.startswith("model="))]
    ended = called([*command, *given], folder)
    return one_line(ended, fine=not (folder / "job").exists())


def one_line(ended: Called, *, fine: bool) -> tuple[str, str]:
    """How a command ended that has to refuse in one line, where it left what it should."""
    if ended.line:
        return ("refused" if fine else "crashed"), ended.line
    return ("wrong" if ended.status == 0 else "crashed"), ended.end


def refusals(part: str, faults: Faults, few: int) -> Iterator[Case]:
    """A case for one in `few` faults of every kind, which have to be refused."""
    for kind, (named, write) in faults.items():
        for what in list(named)[::few]:
            yield Case(part, f"{kind}{what}", partial(refused, partial(write, named[what])))


def wrong_arrays(changed: Callable[[], Arrays], folder: Path, *given: str) -> Sequence[str]:
    """Arrays with something wrong."""
    save(folder, {**arrays(), **changed()})
    return (*NPZ, *given)


def wrong_targets(task: str, changed: Callable[[], Arrays], folder: Path) -> Sequence[str]:
    """Targets of a task with something wrong."""
    given = (f"task={task}", "partition=iid", "partition.num_clients=4")
    return wrong_arrays(changed, folder, *given)


def without(name: str, folder: Path) -> Sequence[str]:
    """All arrays but one."""
    save(folder, {key: value for key, value in arrays().items() if key != name})
    return NPZ


def claimed_size(_: str, folder: Path) -> Sequence[str]:
    """An array whose head claims far more entries than there are."""
    save(folder, arrays())
    fake = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        fake, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40, 8, 8)}
    )
    with zipfile.ZipFile(folder / "mine.npz", "a") as file:
        file.writestr("x_train.npy", fake.getvalue())
    return NPZ


def one_array(_: str, folder: Path) -> Sequence[str]:
    """What np.save writes."""
    np.save(folder / "mine.npy", arrays()["x_train"])
    return "dataset=npz", "dataset.path=mine.npy"


def wrong_split(text: str, folder: Path) -> Sequence[str]:
    """A partition's table with something wrong."""
    (folder / "mine.csv").write_text(text)
    return "partition=from_file", "partition.path=mine.csv"


def wrong_features(rows: str, folder: Path) -> Sequence[str]:
    """A table of one's own with something wrong."""
    (folder / "mine.csv").write_text("x,label\n" + rows)
    return TABLE


def saved_as(page: Image.Image, *others: Image.Image) -> Callable[[Path], None]:
    """What puts pages of another format in the place of an image."""

    def change(one: Path) -> None:
        one.unlink()
        page.save(one.with_suffix(".tiff"), save_all=True, append_images=others)

    return change


def in_a_circle(one: Path) -> None:
    """Links from each of two classes to the other."""
    (one.parent / "b").symlink_to(one.parents[1] / "b")
    (one.parents[1] / "b" / "a").symlink_to(one.parent)


def class_of_the_test(one: Path) -> None:
    """A class that the training images do not have."""
    test = one.parents[2] / "test"
    (test / "c").mkdir()
    (test / "a" / "0.png").rename(test / "c" / "0.png")


# what happens to images, told by the first of them
IMAGES: Mapping[str, Callable[[Path], object]] = {
    "cut": lambda one: one.write_bytes(one.read_bytes()[:40]),
    "no image": lambda one: one.write_bytes(b"not an image"),
    "emptied": lambda one: one.write_bytes(b""),
    "no test images": lambda one: [file.unlink() for file in one.parents[2].glob("test/*/*.png")],
    "a class in the test only": class_of_the_test,
    "several pages": saved_as(Image.new("L", (8, 8), 0), Image.new("L", (8, 8), 200)),
    "float numbers": saved_as(Image.new("F", (8, 8))),
    "a pipe": lambda one: os.mkfifo(one.with_name("pipe.png")),
    "links in a circle": in_a_circle,
}


def wrong_images(change: Callable[[Path], object], folder: Path) -> Sequence[str]:
    """Folders of images with something wrong."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 60), ("test", 12)):
        for i in range(count):
            home = folder / "images" / split / "ab"[i % 2]
            home.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(home / f"{i}.png")
    change(folder / "images" / "train" / "a" / "0.png")
    given = ("dataset=image_folder", "dataset.path=images", "dataset.size=8")
    return (*given, "partition.num_clients=4")


FAULTS: Faults = {
    "arrays: ": (WRONG, wrong_arrays),
    "no ": ({name: name for name in arrays()}, without),
    "an array ": ({"larger than its file": ""}, claimed_size),
    **{
        f"targets: {task}, ": (faults, partial(wrong_targets, task))
        for task, faults in TARGETS.items()
    },
    "partition: ": (TABLES, wrong_split),
    "table: ": (OWN, wrong_features),
    "one array ": ({"as npz": ""}, one_array),
    "images: ": (IMAGES, wrong_images),
}


def slip(what: str, folder: Path) -> tuple[str, str]:
    """Run on a table with a column that should decide nothing: a warning names it."""
    head, value, says = SLIPS[what]
    rows = "".join(f"{i * 31 % 17},{i % 2},{value(i)}\n" for i in range(100))
    (folder / "mine.csv").write_text(f"x,label{head}\n{rows}")
    ended = called([*COMMAND[:1], *COMMAND[2:], *TABLE], folder)
    if ended.status != 0:
        return "crashed", ended.end
    said = says in " ".join(ended.err.split())
    return ("refused" if said else "wrong"), ended.end


def damaged(how: str, number: int, folder: Path) -> tuple[str, str]:
    """Run on a damaged file: it is refused, or the results are those of the whole one."""
    save(folder, arrays())
    damage(folder / "mine.npz", how, random.Random(number))
    ended = called([*COMMAND, *NPZ], folder)
    if ended.status != 0:
        return one_line(ended, fine=not (folder / "job").exists())
    same = signature(folder / "job") == whole()
    return ("survived" if same else "wrong"), "read as before"


@cache
def whole() -> str:
    """The results on a file that nothing happened to."""
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), arrays())
        done = called([*COMMAND, *NPZ], Path(folder))
        assert done.status == 0, done
        return signature(Path(folder, "job"))


def flipped(name: str, *at: int) -> Callable[[Arrays], None]:
    """What changes the last bit of one entry of an array."""

    def change(given: Arrays) -> None:
        given[name][at] ^= 1

    return change


def cut_to(part: slice) -> Callable[[Arrays], None]:
    """What leaves a part of the training examples, in the order of a slice."""

    def change(given: Arrays) -> None:
        for name in ("x_train", "y_train"):
            given[name] = given[name][part].copy()

    return change


# what changes between two halves of a job
CHANGES: Mapping[str, Callable[[Arrays], None]] = {
    "other pixel": flipped("x_train", 5, 3, 3),
    "other label": flipped("y_train", 5),
    "other test": flipped("x_test", 5, 3, 3),
    "other order": cut_to(slice(None, None, -1)),
    "one less": cut_to(slice(-4)),
}


def changed_data(change: Callable[[Arrays], None], folder: Path) -> tuple[str, str]:
    """Change the data of a job that was killed, and continue it."""
    given = arrays()
    save(folder, given)
    config = composed(
        "algorithm=ifca",
        "dataset=npz",
        f"dataset.path={folder / 'mine.npz'}",
        "partition=iid",
        "partition.examples_per_client=20",
    )

    def play(after: Callable[[int], None] | None = None) -> Ended:
        return played(partial(build, config), RunFolder(folder / "job", config), after)

    first = forked(partial(play, die_after(2)))
    assert first.kind == "killed", first
    change(given)
    save(folder, given)
    before = contents(folder / "job")
    ended = forked(play)
    if ended.kind == "refused" and "\n" not in ended.said:
        kept = contents(folder / "job") == before
        return ("refused" if kept else "crashed"), ended.said
    return ("wrong" if ended.kind == "done" else "crashed"), f"{ended.kind}: {ended.said[-500:]}"


def users_method(folder: Path, code: str) -> tuple[list[str], Path]:
    """A command that runs a user's method, and the file of its code."""
    (folder / "mine" / "algorithm").mkdir(parents=True)
    (folder / "mine" / "algorithm" / "user.yaml").write_text("_target_: user_method.Mine\n")
    file = folder / "mine" / "user_method.py"
    file.write_text(code)
    command = [*COMMAND, "rounds=4", "checkpoint_seconds=0", "partition.num_clients=8"]
    return [*command, "--config-dir", "mine", "algorithm=user"], file


def changed_code(folder: Path) -> tuple[str, str]:
    """Change a user's file between two halves of a job: it is told, and nothing else happens."""
    killing = "import os; rnd.t == 2 and os.kill(os.getpid(), 9); "
    done = DOES["round"]
    command, code = users_method(folder, METHOD.format(**{**DOES, "round": f"{killing}{done}"}))
    first = called(command, folder)
    if first.status != -9:
        return "crashed", first.end
    code.write_text(METHOD.format(**DOES))
    ended = called(command, folder)
    told = "user_method.py changed" in ended.err
    return ("refused" if told and ended.status == 0 else "wrong"), ended.end


def changed_code_when_done(folder: Path) -> tuple[str, str]:
    """Change a user's file of a finished job: it is told, and the numbers stay."""
    command, code = users_method(folder, METHOD.format(**DOES))
    first = called(command, folder)
    if first.status != 0:
        return "crashed", first.end
    before = contents(folder / "job")
    code.write_text(code.read_text() + "changed = True\n")
    ended = called(command, folder)
    if ended.status != 0 or contents(folder / "job") != before:
        return "crashed", ended.end
    return ("refused" if "user_method.py changed" in ended.err else "wrong"), ended.end


def changed_data_when_done(change: Callable[[Arrays], None], folder: Path) -> tuple[str, str]:
    """Change the data of a finished job, and ask for it again."""
    given = arrays()
    save(folder, given)
    first = called([*COMMAND, *NPZ], folder)
    if first.status != 0:
        return "crashed", first.end
    before = contents(folder / "job")
    change(given)
    save(folder, given)
    ended = called([*COMMAND, *NPZ], folder)
    return one_line(ended, fine=contents(folder / "job") == before)


def cases(quick: bool) -> Iterator[Case]:
    """Damaged and wrong data, and data that changed."""
    whole()
    few = 12 if quick else 1
    yield from refusals("data", FAULTS, few)
    for how, number in (("flipped", 3 if quick else 60), ("cut", 1 if quick else 15)):
        for i in range(number):
            name = "a bit" if how == "flipped" else how
            yield Case("data", f"{name} {i}", partial(damaged, how, i))
    yield Case("data", "an empty file", partial(damaged, "emptied", 0))
    for what in list(SLIPS)[::few]:
        yield Case("data", f"told: {what}", partial(slip, what))
    for part, of_data, of_code in (
        ("other data in the second half", changed_data, changed_code),
        ("other data of a finished job", changed_data_when_done, changed_code_when_done),
    ):
        for what in list(CHANGES)[::few]:
            yield Case(part, what, partial(of_data, CHANGES[what]))
        yield Case(part, "a user's code", of_code)
