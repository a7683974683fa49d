"""Rows of a table to training and test examples: what csv and hf share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.types import Dataset, Names
from fedclust.core.validation import drawn_test
from fedclust.datasets.checks import checked
from fedclust.datasets.columns import NamedColumns, Owners, few
from fedclust.datasets.copies import told_of_copies
from fedclust.datasets.fit import Fit
from fedclust.datasets.inputs import Inputs
from fedclust.datasets.normalise import affine, as_float32, centre, unchanged
from fedclust.datasets.sites import tell_of_targets
from fedclust.datasets.suspects import tell_of_units
from fedclust.helpers.errors import DataError, require


@dataclass(frozen=True)
class DrawnPart:
    """How test rows are drawn: their share, and the seed that decides for all seeds of a run, None
    where each draws its own.
    """

    share: float
    seed: int | None


def check_parts(
    client: str | Sequence[str] | None, group: str | None, test_share: float, named: bool
) -> None:
    """Raise a `ConfigError` for options that do not go together.

    Args:
        client, group: dataset.client and dataset.group.
        test_share: dataset.test_share.
        named: whether the data say themselves what is for testing.
    """
    require(
        client is None or isinstance(client, str) or (len(client) > 0 and len(set(client)) > 0),
        "dataset.client",
        client,
        "a column, several, or null",
    )
    require(
        group is None or client is not None,
        "dataset.group",
        group,
        "null without dataset.client, since a client's group is meant",
    )
    require(
        test_share > 0 or named or client is not None,
        "dataset.test_share",
        test_share,
        "above 0 without dataset.client; with it partition=natural can cut a test set per client",
    )


def parted(
    table: NamedColumns,
    name: str,
    examples: Inputs | Tensor,
    targets: tuple[Tensor, tuple[str, ...]],
    whose: Owners,
    tests: Tensor | DrawnPart,
    normalise: str,
    fill: str | None = None,
    unit: str | None = None,
) -> Dataset:
    """The dataset of rows that are cut into training and test examples.

    Args:
        table: where they are from.
        name: of the dataset.
        examples: features, or pictures [N, C, H, W] uint8.
        targets, whose: what `read_targets` and `NamedColumns.clients` return.
        tests: [N] bool, which rows are for testing, or how they are drawn. Where every seed draws
            its own, those of seed 0 are the dataset's.
        normalise: a word of `fedclust.datasets.normalise`, client or none.
        fill: see `fedclust.datasets.fit.Fit`.
        unit: column of whom the rows are, which no split divides; None where each is by itself.

    Raises:
        DataError: nothing is left to train on, or a class has test rows only.
    """
    y, known = targets
    owner = whose.of_row
    anew = cut_seed = None
    fixed = not isinstance(tests, DrawnPart)
    how: Literal["drawn", "cut", "fixed"] = "fixed"
    unit_of = None if unit is None else table.units(unit)
    if isinstance(tests, DrawnPart):
        how = "drawn" if tests.share else "cut"
        cut_seed = None if tests.share else tests.seed
        anew = tests.share if tests.seed is None and tests.share else None
        tests = drawn_test(owner, table.size, tests.share, tests.seed or 0, y, unit_of)
    if bool(tests.all()):
        raise DataError(
            f"{table.what} leaves no row to train on: lower dataset.test_share, or see which rows "
            "the data name for training"
        )
    tell_of_targets(table, y.numpy(), known, whose, classes=y.dim() == 1)
    if unit is None:
        tell_of_units(table, owner, tests, how)
    unseen = [known[k] for k in range(len(known)) if not bool((y[~tests] == k).any())]
    if unseen and fixed and y.dim() == 1:
        raise DataError(
            f"{table.what} has test rows of class {few(unseen)}, but none to train on: name one "
            "for training, or take them out"
        )
    names = Names(clients=whose.names, groups=whose.groups)
    names = replace(names, classes=known) if y.dim() == 1 else replace(names, targets=known)
    fit, raw = None, dict[str, Any]()
    if isinstance(examples, Inputs):
        names = replace(names, features=examples.names)
        seen = np.ones(table.size, dtype=bool) if anew is not None else ~tests.numpy()
        x, less = _as_float32(table, examples, seen, normalise)
        raw = {"columns": [asdict(one) for one in examples.columns], "less": less}
        coded, flags = torch.from_numpy(examples.coded), torch.from_numpy(examples.flags)
        fit = Fit(normalise, fill, coded, names.features, flags)
        word = "none" if fit.anyway else normalise
    else:
        x, word = examples, normalise
    seen_x = x[~tests] if anew is None else x
    scale, shift = unchanged(x) if word == "none" else affine(word, seen_x)
    made = checked(
        Dataset(
            name=name,
            x_train=x[~tests],
            y_train=y[~tests],
            x_test=x[tests],
            y_test=y[tests],
            num_classes=len(known),
            scale=scale,
            shift=shift,
            owner=None if owner is None else owner[~tests],
            test_owner=None if owner is None or not bool(tests.any()) else owner[tests],
            group=whose.group,
            test_share=anew,
            cut_seed=cut_seed,
            names=names,
            unit=None if unit_of is None else torch.cat([unit_of[~tests], unit_of[tests]]),
            remarks=tuple(dict.fromkeys(table.remarks)),
            fit=fit,
            raw=raw,
        ),
        gaps=fit is not None and fit.anyway,
    )
    return told_of_copies(made)


def _as_float32(
    table: NamedColumns, examples: Inputs, seen: npt.NDArray[np.bool_], normalise: str
) -> tuple[Tensor, list[float]]:
    """The features [N, F] float32, those that it would not tell apart moved to 0 where they are
    scaled anyway; and by how much each was moved.
    """
    if normalise != "none":
        less = centre(examples.x[seen]) * ~examples.flags
        return as_float32(examples.x, less), less.tolist()
    for place, name in enumerate(examples.names):
        values = examples.x[:, place][~np.isnan(examples.x[:, place])]
        many, left = (len(np.unique(one)) for one in (values, values.astype(np.float32)))
        if left < 0.9 * many:
            table.remarks.append(
                f"{table.what}: column {name} has {many} values, of which float32 tells {left} "
                "apart; dataset.normalise=mean_std keeps them apart"
            )
    return as_float32(examples.x, 0), [0.0] * len(examples.names)
