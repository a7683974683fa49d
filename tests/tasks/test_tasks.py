"""Tasks against closed forms and scikit-learn, their scores, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, mean_absolute_error, r2_score
from torch import Tensor
from toy_tasks import FEATURES, TASKS, WIDE, dataset_for, federation_for, pool_for

from fedclust.cluster_metrics.descriptor import Descriptor
from fedclust.config.data import federate
from fedclust.config.fits import check_suits
from fedclust.core.attack import Attack, under_attack
from fedclust.core.calls import GradCall, Shards, TrainCall
from fedclust.core.task import Classification, Task
from fedclust.core.trivial import loss_of_all, predicted, trivial
from fedclust.core.types import Dataset, Federation, Pool, Split
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import UserError
from fedclust.models.mlp import mlp
from fedclust.partitions.dirichlet import DirichletLabels
from fedclust.partitions.iid import IID
from fedclust.scenarios.swap_all import SwapAll
from fedclust.solver import Solver
from fedclust.tasks.multilabel import Multilabel
from fedclust.tasks.regression import Regression
from fedclust.updates.attacks import LabelFlip, SignFlip

CPU = torch.device("cpu")


def everyone(rows: Tensor) -> Shards:
    """One client that owns some rows."""
    index = rows.unsqueeze(0)
    return Shards(index=index, count=torch.tensor([len(rows)]), key=torch.tensor([7]))


def trained(pool: Pool, rows: Tensor, lr: float, steps: int) -> Tensor:
    """A linear model [P] from zeros after full-batch steps."""
    engine = LoopEngine(mlp((FEATURES,), pool.num_classes, hidden=[]), pool)
    solver = Solver(lr=lr, batch_size=None, epochs=None, steps=steps)
    zeros = torch.zeros(1, engine.layout.num_params)
    one = torch.zeros(1, dtype=torch.int64)
    return engine.answer(TrainCall(zeros, one, everyone(rows), solver, lr)).params[0]


def outputs_of(model: Tensor, x: Tensor, width: int) -> Tensor:
    weight = model[: width * FEATURES].view(width, FEATURES)
    return x @ weight.T + model[width * FEATURES :]


@pytest.mark.full
def test_a_linear_model_of_squared_errors_becomes_that_of_least_squares() -> None:
    dataset, pool = dataset_for(Regression()), pool_for(Regression())
    model = trained(pool, torch.arange(60), 0.3, 400)
    said = pool.task.in_unit(outputs_of(model, pool.x[60:], WIDE))
    x = np.c_[dataset.x_train.double().numpy(), np.ones(60)]
    solved, *_ = np.linalg.lstsq(x, dataset.y_train.numpy(), rcond=None)
    want = np.c_[dataset.x_test.double().numpy(), np.ones(20)] @ solved
    np.testing.assert_allclose(said.numpy(), want, rtol=1e-4)


def test_scores_of_numbers_are_those_of_scikit_learn_in_the_unit_of_the_file() -> None:
    dataset, pool = dataset_for(Regression()), pool_for(Regression())
    outputs = pool.y[60:] + 0.5 * torch.randn(20, WIDE, generator=torch.Generator().manual_seed(3))
    said = pool.task.in_unit(outputs).numpy()
    sums = pool.task.sums(outputs, pool.y[60:]).sum(0)
    scores = pool.task.scores(sums, torch.tensor(20))
    true = dataset.y_test.numpy()
    assert float(scores["mae"]) == pytest.approx(mean_absolute_error(true, said), rel=1e-5)
    assert float(scores["r2"]) == pytest.approx(r2_score(true, said), rel=1e-5)
    # of one example R² is not defined
    one = pool.task.scores(pool.task.sums(outputs[:1], pool.y[60:61])[0], torch.tensor(1))
    assert one["r2"].isnan()
    assert not one["mae"].isnan()
    assert list(pool.task.sum_names(WIDE))[:3] == [f"absolute_error_{t}" for t in range(3)]


def test_a_unit_and_an_offset_change_nothing_but_the_unit_of_scores() -> None:
    dataset = dataset_for(Regression())
    far = replace(dataset, y_train=1e9 + 1000 * dataset.y_train, y_test=1e9 + 1000 * dataset.y_test)
    found = []
    for one in (dataset, far):
        pool = federate(one, IID(num_clients=2), [0], CPU, task=Regression())[0].pool
        outputs = outputs_of(trained(pool, torch.arange(60), 0.3, 5), pool.x, WIDE)
        scores = pool.task.scores(pool.task.sums(outputs, pool.y).sum(0), torch.tensor(80))
        found.append((float(scores["mae"]), float(scores["r2"])))
    assert found[1][0] == pytest.approx(1000 * found[0][0], rel=1e-4)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-4)


def test_macro_f1_is_that_of_scikit_learn_without_labels_that_nobody_has() -> None:
    pool = pool_for(Multilabel())
    outputs = torch.randn(80, WIDE, generator=torch.Generator().manual_seed(3))
    y, task = pool.y, pool.task
    want = f1_score(y.numpy(), (outputs > 0).numpy(), average="macro")
    sums = task.sums(outputs, y).double().sum(0)
    assert float(task.headline(sums, torch.tensor(80))) == pytest.approx(want)
    outputs[:, 2], none = -1, y * torch.tensor([1, 1, 0], dtype=torch.uint8)
    want = f1_score(y.numpy()[:, :2], (outputs > 0).numpy()[:, :2], average="macro")
    sums = task.sums(outputs, none).double().sum(0)
    assert float(task.headline(sums, torch.tensor(80))) == pytest.approx(want)
    nothing = task.headline(torch.zeros(9).double(), torch.tensor(3))
    assert nothing.isnan()


def test_labels_are_learnt_as_by_models_of_their_own() -> None:
    """The loss is the mean over labels, so a model of T labels takes T times the rate."""
    pool = pool_for(Multilabel())
    together = trained(pool, torch.arange(60), 0.3 * WIDE, 50)
    for t in range(WIDE):
        alone = trained(
            replace(pool, y=pool.y[:, t : t + 1], num_classes=1), torch.arange(60), 0.3, 50
        )
        own = torch.cat([together[4 * t : 4 * t + 4], together[12 + t : 13 + t]])
        torch.testing.assert_close(own, alone, rtol=1e-4, atol=1e-5)


def test_a_weight_of_a_class_is_that_many_copies_of_its_examples() -> None:
    pool = pool_for(Classification(class_weight=[1.0, 2.0, 1.0]))
    rows = torch.arange(60)
    twice = torch.cat([rows, rows[pool.y[:60] == 1]])
    gradients = []
    for task, some in ((pool.task, rows), (Classification(), twice)):
        engine = LoopEngine(mlp((FEATURES,), WIDE, hidden=[]), replace(pool, task=task))
        model = torch.linspace(-1, 1, engine.layout.num_params).unsqueeze(0)
        call = GradCall(model, torch.zeros(1, dtype=torch.int64), everyone(some))
        gradients.append(engine.answer(call) * len(some))
    torch.testing.assert_close(*gradients)


def test_balanced_weights_have_mean_one_over_the_training_rows() -> None:
    pool = pool_for(Classification(class_weight="balanced"))
    logits = torch.zeros(60, WIDE)
    loss = pool.task.loss(logits, pool.y[:60])
    assert float(loss.mean()) == pytest.approx(np.log(3))
    by_class = torch.zeros(3).index_add(0, pool.y[:60], loss)
    assert by_class.tolist() == pytest.approx([float(by_class[0])] * 3)
    held = dataset_for(Multilabel()).y_train.double().sum(0)
    balanced: Any = pool_for(Multilabel(pos_weight="balanced")).task
    assert balanced._weight.tolist() == pytest.approx(((60 - held) / held).tolist())


def test_a_label_that_all_or_none_have_is_not_weighed() -> None:
    """It would weigh 0, and as many as there are examples."""
    dataset = dataset_for(Multilabel())
    y = dataset.y_train.clone()
    y[:, 0], y[:, 1] = 1, 0
    task: Any = Multilabel(pos_weight="balanced").fit(replace(dataset, y_train=y))[0]
    held = float(y[:, 2].sum())
    assert task._weight.tolist() == pytest.approx([1.0, 1.0, (60 - held) / held])


def test_a_guess_of_every_client_is_what_its_training_targets_say() -> None:
    """By hand from the rows of each client, and pooled over all test examples."""
    for name in ("multilabel", "mse", "smoothed"):
        fed = federation_for(TASKS[name], clients=3)
        own, pool, said, true = TASKS[name].score.name, fed.pool, [], []
        for client in range(3):
            y = pool.task.in_unit(pool.y[fed.train.of_client(client)]).double()
            tests = pool.task.in_unit(pool.y[fed.test.of_client(client)])
            if name == "smoothed":
                guess = torch.bincount(y.long()).argmax().expand(len(tests))
            else:
                mean = y.mean(0) if name == "mse" else (y.mean(0) > 0.5).double()
                guess = mean.expand(len(tests), -1)
            said.append(guess.numpy())
            true.append(tests.numpy())
        both = np.concatenate(true), np.concatenate(said)
        measure: Any = {
            "multilabel": lambda a, b: np.mean(
                [f1_score(a[:, t], b[:, t]) for t in range(WIDE) if a[:, t].any() or b[:, t].any()]
            ),
            "mse": mean_absolute_error,
            "smoothed": lambda a, b: (a == b).mean(),
        }[name]
        found = trivial(fed)
        assert found[own] == pytest.approx(measure(*both), rel=1e-5)
        each = [measure(*pair) for pair in zip(true, said, strict=True)]
        assert found[f"{own}_client_mean"] == pytest.approx(np.mean(each), rel=1e-5)


def test_the_loss_of_one_guess_for_all_is_that_of_the_mean_of_all_targets() -> None:
    fed = federation_for(TASKS["mse"], clients=3)
    rows = [fed.train.of_client(client) for client in range(3)]
    unequal = [rows[0][:1], rows[1], rows[2]]
    y = fed.pool.y
    guess = y[torch.cat(unequal)].double().mean(0)
    want = float((y[fed.test.index.long()].double() - guess).square().mean())
    assert loss_of_all(replace(fed, train=Split.of(unequal))) == pytest.approx(want)


@pytest.mark.parametrize(
    ("name", "attack"), [("smoothed", SignFlip()), ("smoothed", LabelFlip()), ("mse", SignFlip())]
)
def test_a_guess_is_of_the_clients_that_methods_are_tested_on(name: str, attack: Attack) -> None:
    """As in the federation without those that are hostile or never arrive."""
    whole = federation_for(TASKS[name], clients=5)
    fed = under_attack({0: whole}, attack)[0]
    assert fed.hostile is not None
    (hostile,) = fed.hostile.nonzero().flatten().tolist()
    away = (hostile + 2) % 5
    arrived = torch.arange(5) != away

    def without(*left_out: int) -> Federation:
        kept = [client for client in range(5) if client not in left_out]
        train, test = (
            Split.of([split.of_client(client) for client in kept])
            for split in (whole.train, whole.test)
        )
        return replace(whole, train=train, test=test, group=whole.group[kept])

    for there, alone in ((None, without(hostile)), (arrived, without(hostile, away))):
        assert trivial(fed, there) == trivial(alone)
        assert trivial(fed, there) != trivial(whole)
        said, want = predicted(fed, there), predicted(alone)
        assert torch.equal(said.targets, want.targets)
        assert torch.equal(said.predictions, want.predictions)
        assert set(said.client.tolist()).isdisjoint({hostile} if there is None else {hostile, away})
    assert loss_of_all(fed) == pytest.approx(loss_of_all(without(hostile)))


REFUSED: list[tuple[Task, Any, str]] = [
    (Regression(), dataset_for(Classification()), "task=classification suits them"),
    (Classification(), dataset_for(Regression()), "task=regression suits them"),
    (Classification(), dataset_for(Multilabel()), "task=multilabel suits them"),
    (Multilabel(), dataset_for(Regression()), "task=regression suits them"),
    (Classification(class_weight=[1.0, 2.0]), dataset_for(Classification()), "3 numbers, one for"),
    (
        Multilabel(),
        replace(dataset_for(Multilabel()), y_test=torch.zeros(20, 2, dtype=torch.uint8)),
        r"training examples have shape \(3,\) but those of tests \(2,\)",
    ),
    (
        Regression(),
        replace(dataset_for(Regression()), y_test=torch.zeros(20, 1).double()),
        r"training examples have shape \(3,\) but those of tests \(1,\)",
    ),
    (Multilabel(pos_weight=[1.0]), dataset_for(Multilabel()), "3 numbers, one for each label"),
]


@pytest.mark.parametrize(("task", "dataset", "words"), REFUSED)
def test_targets_of_another_task_are_refused_in_one_line(
    task: Task, dataset: Dataset, words: str
) -> None:
    with pytest.raises(UserError, match=words) as told:
        federate(dataset, IID(num_clients=2), [0], CPU, task=task)
    assert "\n" not in str(told.value)


def test_a_single_number_without_test_rows_is_standardised() -> None:
    """As natural partitions have it that cut every client's test rows themselves."""
    y = torch.tensor([1.0, 3.0], dtype=torch.float64)
    dataset = replace(dataset_for(Regression()), y_train=y, y_test=y[:0], num_classes=1)
    _, found = Regression().fit(dataset)
    assert found.y_train.tolist() == [[-1.0], [1.0]]
    assert found.y_test.shape == (0, 1)


def test_numbers_that_teach_nothing_are_refused() -> None:
    dataset = dataset_for(Regression())
    same = replace(dataset, y_train=torch.ones(60, WIDE, dtype=torch.float64))
    with pytest.raises(UserError, match=r"targets are 1\.0, so"):
        federate(same, IID(num_clients=2), [0], CPU, task=Regression())
    single = replace(same, y_train=same.y_train[:, :1], y_test=same.y_test[:, :1], num_classes=1)
    with pytest.raises(UserError, match=r"targets are 1\.0, so"):
        federate(single, IID(num_clients=2), [0], CPU, task=Regression())
    dataset.y_test[3] = torch.inf
    with pytest.raises(UserError, match="not finite"):
        federate(dataset, IID(num_clients=2), [0], CPU, task=Regression())


def test_a_number_that_never_changes_is_learnt_beside_others() -> None:
    """As the sun gives no power at midnight."""
    dataset = dataset_for(Regression())
    dataset.y_train[:, 1] = 7.0
    task, found = Regression().fit(dataset)
    assert found.y_train[:, 1].tolist() == [0.0] * 60
    assert "targets 1 of 0 to 2 are the same in all training rows" in found.remarks[0]
    assert task.in_unit(torch.zeros(WIDE))[1] == 7.0


@pytest.mark.parametrize(("rows", "value"), [("y_train", 1e300), ("y_test", 1e38)])
def test_numbers_too_far_apart_for_float32_are_refused(rows: str, value: float) -> None:
    dataset = dataset_for(Regression())
    getattr(dataset, rows)[3, 0] = value
    reach = re.escape(f"targets reach {value:.3g}, which float32 cannot hold")
    with pytest.raises(UserError, match=reach):
        Regression().fit(dataset)


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("partition", DirichletLabels(num_clients=3)),
        ("partition", IID(num_clients=3, sizes="power_law")),
        ("scenario", SwapAll()),
    ],
)
def test_what_looks_at_classes_refuses_another_task(key: str, part: Any) -> None:
    with pytest.raises(UserError, match=f"task=regression.*{type(part).__name__} .{key}. looks"):
        check_suits(Regression(), **{key: part})
    check_suits(Classification(), **{key: part})


@pytest.mark.parametrize(
    ("task", "key"),
    [
        (Classification(class_weight="balanced"), "task.class_weight=balanced"),
        (Classification(label_smoothing=0.1), "task.label_smoothing=0.1"),
        (Regression(), "task=regression"),
    ],
)
def test_what_reads_plain_losses_names_the_option_that_changes_them(task: Task, key: str) -> None:
    with pytest.raises(UserError, match=f"{key} is not allowed: Descriptor .algorithm. reads"):
        check_suits(task, algorithm=Descriptor())
    check_suits(Classification(), algorithm=Descriptor())


def test_many_classes_of_few_examples_are_remarked_on() -> None:
    dataset = replace(dataset_for(Classification()), num_classes=390)
    assert "task=regression" in Classification().fit(dataset)[1].remarks[0]
    assert Classification().fit(dataset_for(Classification()))[1].remarks == ()


def test_weights_of_classes_that_a_partition_leaves_out_are_refused() -> None:
    dataset = dataset_for(Classification())

    class Fewer(IID):
        def pool(self, dataset: Dataset) -> Pool:
            return replace(super().pool(dataset), num_classes=2)

    task = Classification(class_weight=[1.0, 2.0, 1.0])
    with pytest.raises(UserError, match=r"task.class_weight=.* takes 2 of 3 classes"):
        federate(dataset, Fewer(num_clients=2), [0], CPU, task=task)


def test_merit_is_higher_for_a_smaller_error() -> None:
    one, two = torch.tensor([[8.0, 0, 0, 0], [6.0, 0, 0, 0]]).double(), torch.tensor([2, 2])
    assert Regression().merit(one, two).tolist() == [-4, -3]
    assert Classification().merit(torch.tensor([1.0]).double(), torch.tensor(2)) == 0.5


def test_merit_of_numbers_does_not_depend_on_their_unit() -> None:
    found = []
    for unit in (1.0, 1000.0):
        dataset = dataset_for(Regression())
        given = replace(dataset, y_train=dataset.y_train * unit, y_test=dataset.y_test * unit)
        task, fitted = Regression().fit(given)
        sums = task.sums(fitted.y_test.flip(0), fitted.y_test).sum(0)
        found.append(float(task.merit(sums, torch.tensor(len(fitted.y_test)))))
    apart = (fitted.y_test.flip(0) - fitted.y_test).double().abs().mean()
    assert found == pytest.approx([-float(apart)] * 2)
