"""Proposals, budget, pruning and the record of a search, on objectives known by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fedclust.helpers.errors import RunFolderError
from fedclust.tuning.record import (
    Trial,
    best_of,
    curve_of,
    read_trials,
    same_search,
    spent,
    write_trials,
)
from fedclust.tuning.search import Proposal, next_batch, num_untried
from fedclust.tuning.space import Dimension, Value

ROUNDS = 9
SPACE = {
    "lr": Dimension("lr", low=1e-3, high=1.0, log=True),
    "k": Dimension("k", low=1, high=5, step=1),
    "how": Dimension("how", options=("a", "b", None)),
}
DEFAULT: dict[str, Value] = {"lr": 0.1, "k": 2, "how": None}


def propose(trials: Sequence[Trial]) -> Proposal:
    return Proposal(SPACE, DEFAULT, trials, higher=True, rounds=ROUNDS)


def tried(proposal: Proposal) -> Trial:
    """A curve towards a height that is best at lr=0.03 and k=3; rates above 0.8 diverge."""
    lr, k = proposal.values["lr"], proposal.values["k"]
    assert isinstance(lr, float)
    assert isinstance(k, int)
    height = 1 - 0.1 * abs(math.log10(lr / 0.03)) - 0.05 * abs(k - 3)
    curve: dict[int, float] = {}
    state = "failed" if lr > 0.8 else "complete"
    for t in range(0 if lr > 0.8 else ROUNDS):
        curve[t] = height * (t + 1) / ROUNDS
        if t < ROUNDS - 1 and proposal.is_hopeless(t, curve[t]):
            state = "pruned"
            break
    return Trial(
        number=proposal.number,
        values=proposal.values,
        state=state,  # type: ignore[arg-type]
        value=curve[ROUNDS - 1] if state == "complete" else None,
        rounds=len(curve),
        gradient_steps=10 * len(curve),
        curve=curve,
        error="it diverged" if state == "failed" else "",
    )


def searched(trials: list[Trial], number: int) -> list[Trial]:
    while len(trials) < number:
        trials.append(tried(propose(trials)))
    return trials


def trial(number: int, value: float | None, rounds: int = ROUNDS) -> Trial:
    state = "complete" if value is not None else "pruned"
    curve = dict.fromkeys(range(rounds), value or 0.0)
    return Trial(number, DEFAULT, state, value, rounds, 0, curve)  # type: ignore[arg-type]


def test_the_default_comes_first_and_all_values_are_in_the_space() -> None:
    trials = searched([], 14)
    assert trials[0].values == DEFAULT
    assert all(SPACE[key].holds(value) for one in trials for key, value in one.values.items())
    assert {one.state for one in trials} == {"complete", "pruned"} | {
        one.state for one in trials if one.error
    }
    best = best_of(trials, higher=True)
    assert best is not None
    assert best.value is not None
    assert best.value > (trials[0].value or 0)


def test_a_search_goes_on_as_if_it_had_not_been_interrupted(tmp_path: Path) -> None:
    whole = searched([], 12)
    write_trials(tmp_path, whole, list(SPACE))
    expected = (tmp_path / "trials.csv").read_bytes()
    for number in (3, 7, 10, 12):  # as after a kill: nothing but the file is left
        write_trials(tmp_path, read_trials(tmp_path, SPACE)[:number], list(SPACE))
        again = searched(read_trials(tmp_path, SPACE), 12)
        write_trials(tmp_path, again, list(SPACE))
        assert (tmp_path / "trials.csv").read_bytes() == expected
    assert read_trials(tmp_path, SPACE) == whole


def test_a_trial_that_leaves_clients_out_is_not_the_best(tmp_path: Path) -> None:
    fair, unfair = trial(0, 0.6), replace(trial(1, 0.9), served=0.5)
    assert best_of([fair, unfair], higher=True) == fair
    assert best_of([unfair, fair], higher=True) == fair
    # whom nobody serves is no advantage of anybody
    both = [replace(fair, served=0.5), unfair]
    assert best_of(both, higher=True) == unfair
    # to the sampler it has failed: what it proposes is what it would after a failure
    many = searched([], 12)
    far = replace(trial(12, 0.99), values={"lr": 0.7, "k": 5, "how": "b"})
    out, failed = replace(far, served=0.5), replace(far, value=None, state="failed")
    assert propose([*many, out]).values == propose([*many, failed]).values
    assert propose([*many, out]).values != propose([*many, far]).values
    write_trials(tmp_path, [fair, unfair], list(SPACE))
    assert read_trials(tmp_path, SPACE) == [fair, unfair]
    # a search of an older version does not say, and is read
    text = (tmp_path / "trials.csv").read_text()
    (tmp_path / "trials.csv").write_text(
        text.replace("served,", "").replace(",1.0,9,", ",9,").replace(",0.5,9,", ",9,")
    )
    assert read_trials(tmp_path, SPACE) == [fair, replace(unfair, served=1.0)]


def test_methods_try_the_same_shared_values_at_random() -> None:
    rate = {"lr": SPACE["lr"]}
    alone = [Trial(n, {"lr": 0.1}, "complete", 0.5, ROUNDS, 0, {}) for n in range(3)]
    rates = Proposal(rate, {"lr": 0.1}, alone, higher=True, rounds=ROUNDS).values["lr"]
    assert propose([trial(n, 0.5) for n in range(3)]).values["lr"] == rates


def test_a_trial_below_the_median_is_given_up_after_a_third_of_the_rounds() -> None:
    past = [trial(n, value) for n, value in enumerate((0.2, 0.4, 0.5, 0.6, 0.9))]
    low = propose(past)
    # the median is 0.5; the first three rounds of nine are left alone
    assert [low.is_hopeless(t, 0.49) for t in range(4)] == [False, False, True, True]
    high = propose(past)
    assert not any(high.is_hopeless(t, 0.51) for t in range(8))
    few = propose(past[:4])
    assert not any(few.is_hopeless(t, 0.0) for t in range(8))
    lower = Proposal(SPACE, DEFAULT, past, higher=False, rounds=ROUNDS)
    assert [lower.is_hopeless(t, 0.51) for t in range(4)] == [False, False, True, True]


def test_the_budget_is_counted_in_rounds() -> None:
    assert next_batch([], 1, ROUNDS) == 1
    assert next_batch([trial(0, 0.5)], 1, ROUNDS) == 0
    # two pruned trials of three rounds leave room for one more of three whole ones, not for two
    pruned = [trial(0, 0.5), trial(1, None, 3), trial(2, None, 3)]
    assert next_batch(pruned, 3, ROUNDS) == 1
    assert next_batch([*pruned, trial(3, 0.5)], 3, ROUNDS) == 0
    failed = [trial(n, None, 0) for n in range(6)]
    assert next_batch(failed, 3, ROUNDS) == 0
    assert next_batch(failed[:5], 3, ROUNDS) == 1


def test_eight_at_most_are_proposed_at_once() -> None:
    assert next_batch([], 24, ROUNDS) == 8
    assert next_batch([trial(n, 0.5) for n in range(8)], 12, ROUNDS) == 4
    assert next_batch([trial(n, None, 1) for n in range(8)], 12, ROUNDS) == 8


def test_trials_of_a_batch_follow_from_those_before_it_and_differ() -> None:
    past = searched([], 9)
    batch: list[Proposal] = []
    for _ in range(4):
        values = [one.values for one in batch]
        batch.append(Proposal(SPACE, DEFAULT, past, values, higher=True, rounds=ROUNDS))
    assert [one.number for one in batch] == [9, 10, 11, 12]
    assert len({one.values["lr"] for one in batch}) == 4
    again = [one.values for one in batch[:3]]
    last = Proposal(SPACE, DEFAULT, past, again, higher=True, rounds=ROUNDS)
    assert last.values == batch[3].values
    # one that runs is no complete one, which others are judged by
    assert not batch[3].is_hopeless(0, 0.0)


def grown(space: dict[str, Dimension], default: dict[str, Value], batches: int) -> list[Trial]:
    """Batches of three, none of them told to the next before it is over."""
    trials: list[Trial] = []
    for _ in range(batches):
        batch: list[Proposal] = []
        for _ in range(3):
            before = [one.values for one in batch]
            batch.append(Proposal(space, default, trials, before, higher=True, rounds=ROUNDS))
        trials += [
            Trial(one.number, one.values, "complete", 0.1 * one.number, ROUNDS, 0, {})
            for one in batch
        ]
    return trials


def test_a_default_outside_is_the_first_trial_and_no_other(tmp_path: Path) -> None:
    outside: dict[str, Value] = {"lr": 3.0, "k": 2, "how": "c"}
    trials = grown(SPACE, outside, 4)
    assert trials[0].values == outside
    assert all(SPACE[key].holds(one.values[key]) for one in trials[1:] for key in SPACE)
    assert len({one.values["lr"] for one in trials}) == 12
    write_trials(tmp_path, trials, list(SPACE))
    assert read_trials(tmp_path, SPACE, outside) == trials
    with pytest.raises(RunFolderError, match=r"trials\.csv is damaged or of another search"):
        read_trials(tmp_path, SPACE)


@pytest.mark.parametrize("default", [1, 7])
def test_no_setting_of_a_finite_space_is_tried_twice(default: int) -> None:
    space = {"k": SPACE["k"], "how": Dimension("how", options=("a", "b"))}
    values: dict[str, Value] = {"k": default, "how": "b"}
    size = 5 * 2 + (default == 7)
    trials = grown(space, values, size // 3)
    tried = {tuple(one.values.values()) for one in trials}
    assert len(tried) == len(trials)
    left = num_untried(space, values, trials)
    assert left == size - len(trials)
    assert next_batch(trials, 20, ROUNDS, left) == left
    assert next_batch(trials, 20, ROUNDS, 0) == 0
    assert num_untried(SPACE, DEFAULT, trials) is None


def test_the_best_is_the_first_of_equal_ones_and_never_a_pruned_one() -> None:
    trials = [trial(0, 0.5), trial(1, 0.7), trial(2, 0.7), trial(3, None)]
    higher, lower = best_of(trials, higher=True), best_of(trials, higher=False)
    assert higher is not None
    assert lower is not None
    assert (higher.number, lower.number) == (1, 0)
    assert best_of(trials[3:], higher=True) is None


def test_of_equal_ones_the_best_has_the_fewest_clusters() -> None:
    found = [(0, 4, 0.8), (1, 1, 0.7), (2, 3, 0.8), (3, 2, 0.8)]
    trials = [replace(trial(i, value), values={"num_clusters": k}) for i, k, value in found]
    best = best_of(trials, higher=True)
    assert best is not None
    assert (best.number, best.values) == (3, {"num_clusters": 2})


@pytest.mark.parametrize("batched", [False, True])
def test_a_typed_list_is_tried_whole(batched: bool) -> None:
    """Four numbers of clusters in four trials, whatever else is searched."""
    space = {
        "lr": Dimension("lr", low=1e-3, high=1.0, log=True),
        "num_clusters": Dimension("num_clusters", options=(1, 2, 3, 4), whole=True),
    }
    default: dict[str, Value] = {"lr": 0.1, "num_clusters": 4}
    trials, batch = list[Trial](), list[dict[str, Value]]()
    for number in range(4):
        one = Proposal(space, default, trials, batch, higher=True, rounds=ROUNDS)
        assert one.number == number
        batch.append(one.values)
        if not batched:
            trials, batch = [*trials, replace(trial(number, 0.5), values=one.values)], []
    tried_values = [one.values for one in trials] or batch
    assert {values["num_clusters"] for values in tried_values} == {1, 2, 3, 4}
    assert len({values["lr"] for values in tried_values}) == 4


def test_the_curve_and_the_cost_of_a_job(tmp_path: Path) -> None:
    lines = ["seed,round,metric,value"]
    for seed, values in ((5, (0.1, 0.3, 0.9)), (6, (0.2, 0.5))):
        for t, value in enumerate(values):
            lines += [f"{seed},{t},gradient_steps,4.0", f"{seed},{t},validation_accuracy,{value}"]
    (tmp_path / "rounds.csv").write_text("\n".join(lines) + "\n")
    assert curve_of(tmp_path, "validation_accuracy") == pytest.approx({0: 0.15, 1: 0.4})
    assert spent(tmp_path) == (3, 20)
    assert curve_of(tmp_path / "none", "validation_accuracy") == {}
    assert spent(tmp_path / "none") == (0, 0)


def test_a_damaged_record_or_another_search_is_one_line(tmp_path: Path) -> None:
    write_trials(tmp_path, searched([], 2), list(SPACE))
    text = (tmp_path / "trials.csv").read_text()
    for damaged in (text[:-20], text.replace("\n1,", "\n2,"), text.replace("lr,", "rate,")):
        (tmp_path / "trials.csv").write_text(damaged)
        with pytest.raises(RunFolderError, match=r"trials\.csv is damaged or of another search"):
            read_trials(tmp_path, SPACE)
    same_search(tmp_path, {"metric": "a", "seeds": [1]})
    same_search(tmp_path, {"metric": "a", "seeds": [1]})
    with pytest.raises(RunFolderError, match=r"with seeds \[1\], and now with \[2\]"):
        same_search(tmp_path, {"metric": "a", "seeds": [2]})
    text = (tmp_path / "search.yaml").read_text()
    for damaged in (text[:-6] + "[", "metric", ""):
        (tmp_path / "search.yaml").write_text(damaged)
        with pytest.raises(RunFolderError, match=r"search\.yaml is damaged; delete its folder"):
            same_search(tmp_path, {"metric": "a", "seeds": [1]})
