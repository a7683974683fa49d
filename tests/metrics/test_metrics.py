"""Metrics of the served models, against closed forms, other implementations and hand-made cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import Tensor
from toys import blank, evaluation_of, federation_of, round_of

from fedclust.core.types import Evaluation, Round
from fedclust.helpers.errors import ConfigError
from fedclust.helpers.ops import discrepancy
from fedclust.metrics import METRICS, document, meaning
from fedclust.metrics.accuracy import accuracy
from fedclust.metrics.contingency import contingency
from fedclust.metrics.recovery import recovery, sizes


def case(
    label: list[int],
    group: list[int],
    correct: list[int] | None = None,
    count: list[int] | None = None,
    models: int = 9,
) -> tuple[Evaluation, Round]:
    size = len(label)
    rnd = round_of(federation_of(blank(), [[0]] * size, group=torch.tensor(group)))
    tested, right = torch.tensor(count or [10] * size), torch.tensor(correct or [0] * size)
    return evaluation_of(torch.tensor(label), right, tested, 2.0 * tested, models), rnd


def test_pooled_accuracy_weighs_examples_and_client_mean_weighs_clients() -> None:
    values = accuracy(*case([0, 0, 0], [0, 0, 0], correct=[9, 1, 0], count=[10, 2, 0]))
    assert values["accuracy"] == 10 / 12
    assert values["accuracy_client_mean"] == pytest.approx((0.9 + 0.5) / 2)
    assert values["test_loss"] == pytest.approx(2.0)


def test_clients_without_a_model_are_not_served() -> None:
    values = accuracy(*case([0, -1, -1, 1], [0] * 4, correct=[5, 0, 0, 5], count=[10, 0, 0, 10]))
    assert values["served"] == 0.5
    assert values["accuracy"] == 0.5


def test_nothing_is_claimed_when_nobody_was_tested() -> None:
    assert accuracy(*case([-1, -1], [0, 1], count=[0, 0])) == {"served": 0.0}


def test_two_merged_groups_of_four_have_purity_three_quarters() -> None:
    values = recovery(*case([0, 0, 1, 1, 2, 2, 2, 2], [0, 0, 1, 1, 2, 2, 3, 3]))
    assert values["purity"] == 0.75
    assert values["matched_accuracy"] == 0.75


def test_names_of_clusters_do_not_matter() -> None:
    values = recovery(*case([7, 7, 2, 2, 5, 5], [0, 0, 1, 1, 2, 2]))
    assert values == {"purity": 1.0, "ari": 1.0, "nmi": pytest.approx(1.0), "matched_accuracy": 1.0}


def test_a_split_group_is_pure_but_not_matched() -> None:
    values = recovery(*case([0, 1, 2, 2], [0, 0, 1, 1]))
    assert values["purity"] == 1.0
    assert values["matched_accuracy"] == 0.75


def test_the_matching_is_one_to_one_and_optimal() -> None:
    # the table [[3, 1], [5, 2]]: both clusters prefer group 0, and the larger preference is met
    label = [0] * 4 + [1] * 7
    group = [0] * 3 + [1] + [0] * 5 + [1] * 2
    assert recovery(*case(label, group))["matched_accuracy"] == (1 + 5) / 11


def test_one_model_for_all_recovers_nothing() -> None:
    values = recovery(*case([0] * 8, [0, 0, 1, 1, 2, 2, 3, 3], models=1))
    assert values == {"purity": 0.25, "ari": 0.0, "nmi": 0.0, "matched_accuracy": 0.25}


def test_a_model_per_client_is_pure_and_agrees_with_nothing() -> None:
    values = recovery(*case(list(range(8)), [0, 0, 0, 0, 1, 1, 1, 1]))
    assert values["purity"] == 1.0
    assert values["ari"] == 0.0


def test_only_clients_with_group_and_label_count() -> None:
    values = recovery(*case([0, 1, 1, -1, 1], [0, 1, -1, 0, 1]))
    assert values["purity"] == 1.0


def test_without_groups_there_is_no_recovery_but_there_are_sizes() -> None:
    evaluation, rnd = case([0, 0, 1, -1], [-1] * 4, models=5)
    assert recovery(evaluation, rnd) == {}
    assert sizes(evaluation, rnd) == {
        "num_clusters": 2.0,
        "empty": 3.0,
        "largest_cluster": 2.0,
        "smallest_cluster": 1.0,
    }
    assert sizes(*case([-1, -1], [0, 1])) == {}


def test_the_page_on_metrics_prints_what_is_computed(root: Path) -> None:
    page = (root / "docs" / "metrics.md").read_text()
    group = [0, 0, 1, 1, 1, 1]
    for name, label in (
        ("the example", [0, 0, 0, 1, 1, 1]),
        ("one cluster for all six", [0] * 6),
        ("a cluster for each client", [0, 1, 2, 3, 4, 5]),
    ):
        scores = recovery(*case(label, group))
        row = [f"{scores[key]:.3f}" for key in ("purity", "ari", "nmi", "matched_accuracy")]
        cells = [cell.removesuffix(".000") for cell in row]
        assert f"| {name} | {' | '.join(cells)} |" in page
    two = accuracy(*case([0, 0], [0, 0], correct=[9, 1], count=[10, 2]))
    said = f"{two['accuracy']:.3f}, and the mean over clients is {two['accuracy_client_mean']:.1f}."
    assert f"10 / 12 = {said}" in " ".join(page.split())
    models = torch.tensor([[0.0, 0.0], [6.0, 8.0]])
    gap = discrepancy(models, models.mean(0, keepdim=True), torch.zeros(2, dtype=torch.int64))
    assert f"discrepancy is {float(gap):.0f}." in page


def test_scores_by_hand() -> None:
    """Clusters of three against groups of two and four, the table [[2, 1], [0, 3]].

    Rand: 4 pairs are together in both, 6 in a cluster and 7 in a group of 15, so 2.8 are expected
    and 6.5 are the most. Information: ln(2) / 3 + ln(1 / 2) / 6 + ln(3 / 2) / 2, over the mean of
    the entropies ln 2 and ln(3) / 3 + 2 ln(3 / 2) / 3.
    """
    values = recovery(*case([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]))
    assert values["ari"] == pytest.approx((4 - 2.8) / (6.5 - 2.8))
    assert values["nmi"] == pytest.approx(0.478704, abs=1e-6)
    assert values["purity"] == pytest.approx(5 / 6)
    assert values["matched_accuracy"] == pytest.approx(5 / 6)


def test_table_of_clusters_and_groups_by_hand() -> None:
    """Cluster 2 is empty and group 1 does not occur: neither has a row or a column."""
    table = contingency(np.array([3, 0, 0, 1, 3, 0]), np.array([0, 2, 2, 0, 2, 0]))
    assert table.tolist() == [[1, 2], [1, 0], [1, 1]]


def test_agreement_with_scikit_learn_on_random_labels() -> None:
    generator = np.random.default_rng(0)
    label, group = generator.integers(0, 5, 200), generator.integers(0, 4, 200)
    values = recovery(*case(label.tolist(), group.tolist()))
    assert values["ari"] == pytest.approx(adjusted_rand_score(group, label))
    assert values["nmi"] == pytest.approx(normalized_mutual_info_score(group, label))
    table = contingency(label, group)
    assert table.sum() == 200
    assert values["purity"] == pytest.approx(sum(row.max() for row in table) / 200)


@pytest.mark.parametrize("permutation", [[1, 0, 2], [2, 1, 0]])
def test_metrics_do_not_depend_on_which_group_is_called_what(permutation: list[int]) -> None:
    label, group = [0, 0, 1, 2, 2, 1], [0, 0, 1, 2, 1, 2]
    renamed: Tensor = torch.tensor(permutation)[torch.tensor(group)]
    assert recovery(*case(label, group)) == pytest.approx(recovery(*case(label, renamed.tolist())))


def test_every_metric_is_documented_and_others_are_refused() -> None:
    evaluation, rnd = case([0, 1], [0, 1], correct=[1, 1])
    names = {**accuracy(evaluation, rnd), **recovery(evaluation, rnd), **sizes(evaluation, rnd)}
    assert set(names) <= set(METRICS)
    with pytest.raises(ConfigError, match=r"report.metric=acuracy is .* did you mean accuracy\?"):
        meaning("acuracy", "report.metric")
    with pytest.raises(ConfigError, match=r"report.metric=xyz is not allowed: one of accuracy, "):
        meaning("xyz", "report.metric")


def test_a_method_can_document_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedclust.metrics.METRICS", dict(METRICS))
    document("temperature", "how soft the choice is", better="lower")
    document("temperature", "how soft the choice is", better="lower")
    assert meaning("temperature", "metric").better == "lower"
    with pytest.raises(ConfigError, match="already means"):
        document("accuracy", "something else")
