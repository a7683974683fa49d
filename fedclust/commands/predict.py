"""`fedclust predict`: what trained models say of new rows, of clients known and new."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedclust.helpers.errors import ConfigError, RunFolderError, counted, require, some_of
from fedclust.helpers.files import atomic_write
from fedclust.helpers.prose import say
from fedclust.launch.typed import Typed

HELP = """usage: fedclust predict FOLDER FILE [client=NAME] [seed=N] [arm=NAME] [to=FILE.csv]

  FOLDER       of a finished job, or of `fedclust advise`, whose choice is taken
  FILE         a CSV with the columns of the job's table; of series a folder or file as the job had
  client=…     whose all rows are, where FILE has no column that names the client of each
  seed=…       which seed's models, where the job has several
  arm=…        which job, where the folder has several
  to=…         the CSV to write; without, it is printed

Every row gets its client, the model that predicts it (named by the clients that use it), and what
the model says. A client that the job did not know gets the model that fits the labels of its rows
best; without labels, the one of those clients whose inputs are most like its own. How sure that is
stands in the column `sure`. docs/how-to/outside.md explains more."""
_KEYS = ("client", "seed", "arm", "to")
_SHOWN = 3  # columns
_BEGIN = b"row,client,model,by,sure,"  # of a CSV that is written here


def command(arguments: Sequence[str]) -> None:
    """Predict the rows of a file.

    Raises:
        UserError: for a folder or a file that cannot be used, in one line; nothing is written.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return
    typed = Typed.of(arguments)
    given, own = list(typed.texts), typed.own
    keys = dict(one.split("=", 1) for one in given if one.partition("=")[0] in _KEYS)
    paths = [one for one in given if one.partition("=")[0] not in _KEYS]
    if len(paths) != 2:
        raise ConfigError("fedclust predict needs a FOLDER and a FILE: see fedclust predict --help")
    folder, file = map(Path, paths)
    seed = keys.get("seed")
    require(seed is None or seed.isdecimal(), "seed", seed, "a whole number")
    to = Path(keys["to"]) if "to" in keys else None
    fits = to is None or (to.suffix == ".csv" and to.parent.is_dir() and not to.is_dir())
    require(fits, "to", to, "a .csv file in a folder that is there")
    if to is not None and to.exists() and not _is_prediction(to):
        require(False, "to", to, "a file that is not there yet, or an earlier prediction")

    from fedclust.launch.api import load  # and with it pandas

    result = load(_job(folder))
    made = result.predicted(
        file,
        keys.get("client"),
        seed=None if seed is None else int(seed),
        arm=keys.get("arm"),
        config_dir=own,
    )
    console = Console(stderr=True)
    for one in made.placed:
        if one.by in ("labels", "inputs"):
            by = f"{one.labelled} labelled rows" if one.by == "labels" else "its inputs"
            say(
                console,
                f"{one.client} is new: by {by} it gets the model of {one.model}, which fits best "
                f"in {100 * one.sure:.0f} % of resamples of its rows",
            )
        elif one.by == "only":
            say(console, f"{one.client} is new: it gets the one model that there is")
    if made.rightly is not None:
        right, told = made.rightly
        say(
            console,
            f"by inputs alone {right} of {told} known clients would get their own model; the "
            "labels of a few rows are a better guide"
            if told
            else "no two clients share a model, so nothing says how well inputs place a new one: "
            "give the labels of some of its rows",
        )
    for client, columns in made.far.items():
        if columns:
            shown = [
                f"{one.column} ({counted(one.rows, 'row')}, as {one.value:.6g}; {one.least:.6g} to "
                f"{one.most:.6g} in the job)"
                for one in columns
            ]
            say(
                console,
                f"{client} has values far outside of the job's rows, of which its models know "
                f"nothing, in {some_of(shown, _SHOWN)}",
                style="yellow",
            )
    frame = made.frame.assign(row=range(1, len(made.frame) + 1))
    frame = frame[["row", *made.frame.columns]]
    text = frame.to_csv(index=False, lineterminator="\n")
    if to is None:
        sys.stdout.write(text)
        return
    atomic_write(to, text)
    print(to)


def _is_prediction(file: Path) -> bool:
    """Whether a file begins as those that are written here."""
    with file.open("rb") as content:
        return content.read(len(_BEGIN)) == _BEGIN


def _job(folder: Path) -> Path:
    """The folder whose models are taken: of an advice, that of its choice."""
    from fedclust.advise.verdict import FILE, TRAINED

    verdict = folder / "advice" / FILE
    if not verdict.is_file():
        return folder
    try:
        return folder / str(json.loads(verdict.read_text(encoding="utf-8"))[TRAINED])
    except (OSError, ValueError, KeyError, TypeError) as error:
        again = "run the same `fedclust advise` once more"
        raise RunFolderError(f"{verdict} does not say which job was chosen: {again}") from error
