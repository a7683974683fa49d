"""Ranks decide together, and an error of one is an error of all."""

from __future__ import annotations

import pickle

import pytest
from two_ranks import Pair

from fedclust.helpers import distributed as ranks
from fedclust.helpers.distributed import Ranks, here, launched, quiet, started
from fedclust.helpers.errors import ConfigError, DivergedError, Interrupted
from fedclust.launch.failures import Stopped


def decisions(group: Ranks) -> tuple[object, ...]:
    order: list[int] = []
    with group.together():
        agreed = group.agree(lambda: {"rank": group.rank})
        group.in_turn(lambda: order.append(group.rank))
        group.same("x", 5)
        return agreed, order, group.highest(10 * group.rank), group.leads


def failing(group: Ranks, errors: dict[int, Exception], where: str) -> tuple[str, str]:
    """What is raised on this rank where `errors` are raised on some, the others being at
    `where`.
    """
    try:
        with group.together():
            if group.rank in errors:
                raise errors[group.rank]  # noqa: TRY301
            if where == "decision":
                group.agree(lambda: 1)
            elif where == "verb":
                group.meet("train", 1)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def differing(group: Ranks) -> str:
    try:
        with group.together():
            group.same("the weather", group.rank)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_rank_0_decides_and_all_hear_the_highest(two_ranks: Pair) -> None:
    assert two_ranks(decisions) == [
        ({"rank": 0}, [0], 10, True),
        ({"rank": 0}, [1], 10, False),
    ]


@pytest.mark.parametrize("where", ["end", "decision", "verb"])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_one_is_raised_in_all(two_ranks: Pair, rank: int, where: str) -> None:
    said = two_ranks(failing, {rank: ConfigError("k=0 is not allowed")}, where)
    assert said == [("ConfigError", "k=0 is not allowed")] * 2
    said = two_ranks(failing, {rank: ZeroDivisionError("by\nzero")}, where)
    assert said[rank] == ("ZeroDivisionError", "by\nzero")
    assert said[1 - rank] == ("RankFailed", f"rank {rank} failed: ZeroDivisionError: by zero")


def ending(group: Ranks, kind: str) -> tuple[str, str]:
    """What is raised where all ranks end in the same way."""
    made = {
        "signal": Interrupted(15),
        "diverged": DivergedError("not finite"),
        "bug": KeyError("k"),
    }
    return failing(group, {0: made[kind], 1: made[kind]}, "end")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("signal", "Interrupted"), ("diverged", "DivergedError"), ("bug", "KeyError")],
)
def test_an_error_of_all_keeps_its_kind(two_ranks: Pair, kind: str, expected: str) -> None:
    said = two_ranks(ending, kind)
    assert said[0] == said[1]
    assert said[0][0] == expected


def test_an_error_of_the_system_stays_one(two_ranks: Pair) -> None:
    said = two_ranks(failing, {0: OSError(28, "No space left on device", "rounds.csv")}, "decision")
    assert said == [("OSError", "[Errno 28] No space left on device: 'rounds.csv'")] * 2


def test_an_error_told_inside_is_not_told_again(two_ranks: Pair) -> None:
    assert two_ranks(nested) == [["ConfigError: a", "ConfigError: b"]] * 2


def nested(group: Ranks) -> list[str]:
    """What comes out where rank 0 fails inside work inside work, which goes on with other work."""
    found = []
    for text in "ab":
        try:
            with group.together(), group.together():
                if group.leads:
                    raise ConfigError(text)  # noqa: TRY301
                group.agree(lambda: 1)
        except ConfigError as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def test_the_first_rank_that_fails_is_heard(two_ranks: Pair) -> None:
    said = two_ranks(failing, {0: ConfigError("a"), 1: DivergedError("b")}, "end")
    assert said == [("ConfigError", "a")] * 2


def test_ranks_go_on_after_an_error(two_ranks: Pair) -> None:
    two_ranks(failing, {1: ConfigError("a")}, "verb")
    assert two_ranks(failing, {}, "verb") == [("", "")] * 2


def test_ranks_that_differ_are_told(two_ranks: Pair) -> None:
    said = two_ranks(differing)
    assert said[0] == said[1]
    assert said[0].startswith("RankFailed: rank 1 differs from rank 0 in the weather;")


def test_a_process_alone_agrees_with_itself() -> None:
    alone = here()
    with started(), alone.together():
        assert alone.leads
        assert alone.agree(lambda: 3) == alone.in_turn(lambda: 3) == alone.highest(3) == 3
    with pytest.raises(ConfigError, match="a"), alone.together():
        raise ConfigError("a")


def test_a_worker_of_a_launcher_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ranks._SAID_BY_TORCHRUN:
        monkeypatch.setenv(name, "1")
    assert not launched()  # a single process
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched()
    assert quiet()
    with pytest.raises(ConfigError, match="launcher"):
        here()


FIVE = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
ALL = {**FIVE, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set as torchrun does, but RANK is not"),
        ({"RANK": "0"}, "RANK=0 is set as torchrun does, but WORLD_SIZE is not"),
        (FIVE, "but MASTER_ADDR is not: start with torchrun, or unset WORLD_SIZE"),
        ({**ALL, "WORLD_SIZE": "two"}, "WORLD_SIZE=two is not allowed: a whole number"),
        ({**ALL, "RANK": ""}, "RANK='' is not allowed: a whole number"),
        ({**ALL, "RANK": "2"}, "RANK=2 is not allowed: below WORLD_SIZE=2"),
        ({**ALL, "MASTER_PORT": "x"}, "MASTER_PORT=x is not allowed"),
    ],
)
def test_half_of_what_torchrun_sets_is_refused(
    given: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error, started():
        raise AssertionError("computes alone")
    assert says in str(error.value)
    if given.get("RANK") != "2":
        assert not quiet()


@pytest.mark.parametrize(
    "given", [{"MASTER_ADDR": "node1", "MASTER_PORT": "1"}, {"WORLD_SIZE": "1"}, {}]
)
def test_what_says_nothing_of_other_ranks_is_no_launch(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with started():
        assert here().size == 1


def test_an_interrupt_survives_the_way_between_processes() -> None:
    for error in (Interrupted(2), Stopped(Interrupted(15))):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
    assert again.reason.exit_status == 143
    assert str(again.reason) == str(Interrupted(15))
