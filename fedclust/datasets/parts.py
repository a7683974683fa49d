"""Rows of a table to training and test examples: what csv and hf share."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedclust.core.task import Targets
from fedclust.core.types import Dataset, Names
from fedclust.core.validation import drawn_test
from fedclust.datasets.checks import checked
from fedclust.datasets.columns import NamedColumns, few, listed
from fedclust.datasets.copies import told_of_copies
from fedclust.datasets.fit import Fit
from fedclust.datasets.inputs import Inputs, Tabular, read_targets
from fedclust.datasets.normalise import affine, as_float32, centre, unchanged
from fedclust.datasets.sites import tell_of_targets
from fedclust.datasets.suspects import tell_of_units
from fedclust.helpers.errors import DataError


def table_dataset(options: Tabular, table: NamedColumns, name: str, targets: Targets) -> Dataset:
    """The dataset of a table whose rows are cut into training and test examples. Where every seed
    draws its own test rows, those of seed 0 are the dataset's.

    Raises:
        DataError: nothing is left to train on, a class has test rows only, or a column holds what
            it may not.
    """
    label, normalise = listed(options.label), options.normalise
    table = table.labelled(label, options.unlabelled)
    table.whole([one for one in options.used if one in table.names], label)
    y, known = read_targets(table, options.label, targets)
    whose = table.clients(options.owners, options.group)
    tests = options.tests(table)
    examples = options.examples(table, y, whose)
    owner, fixed = whose.of_row, tests is not None
    anew = cut_seed = None
    how: Literal["drawn", "cut", "fixed"] = "fixed"
    unit_of = None if options.unit is None else table.units(options.unit)
    if tests is None:
        share, seed = options.test_share, options.data_seed
        how = "drawn" if share else "cut"
        cut_seed = None if share else seed
        anew = share if seed is None and share else None
        tests = drawn_test(owner, table.size, share, seed or 0, y, unit_of)
    if bool(tests.all()):
        raise DataError(
            f"{table.what} leaves no row to train on: lower dataset.test_share, or see which rows "
            "the data name for training"
        )
    tell_of_targets(table, y.numpy(), known, whose)
    if unit_of is None:
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
        values = np.ma.masked_invalid(examples.x)
        raw = {
            "columns": [asdict(one) for one in examples.columns],
            "less": less,
            "least": values.min(0).filled(0.0).tolist(),
            "most": values.max(0).filled(0.0).tolist(),
        }
        coded, flags = torch.from_numpy(examples.coded), torch.from_numpy(examples.flags)
        fit = Fit(normalise, options.fill, coded, names.features, flags)
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
        table.what,
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
            what = f"column {name} has {many} values, of which float32 tells {left} apart"
            table.remark(f"{what}; dataset.normalise=mean_std keeps them apart")
    return as_float32(examples.x, 0), [0.0] * len(examples.names)
