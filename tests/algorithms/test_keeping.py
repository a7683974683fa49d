"""What a solver keeps can stay with the client from round to round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from digits_jobs import config_of
from planted import ALGORITHMS, configured, copied, federation, rounds_of, same, simulate

from fedclust.algorithms.layers.keeping import _Keeping, keeping
from fedclust.config.build import build
from fedclust.core.client_models import ClientModels
from fedclust.core.kept import Kept
from fedclust.engines.loop import LoopEngine
from fedclust.helpers.errors import ConfigError
from fedclust.runtime.contract import fields_of

# what reads gradients off a model's movement, or begins anew with every batch
REFUSE = ("apfl", "cfl_mgd", "jgl", "jgl_epochs", "pfedme", "scaffold")
_QUICK = (*REFUSE, "ditto", "fedavg", "fedem", "fedrep", "fesem", "flexcfl", "ifca", "lcfl")
EACH = [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in ALGORITHMS]
ADAM = ("solver=adam", "solver.lr=0.05")


def test_places_of_clients() -> None:
    kept = Kept.nothing(3, 2, torch.device("cpu"))
    first = kept.of("train", torch.tensor([2, 0]))
    assert first.tolist() == [2, 0]
    kept.keep(first, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert kept.rows.all().tolist() == [[3, 4], [0, 0], [1, 2]]
    # again in this round, and a client twice: other places
    assert kept.of("train", torch.tensor([0, 1, 0])).tolist() == [3, 1, 6]
    assert kept.of("head", torch.tensor([1])).tolist() == [10]
    kept.keep(torch.tensor([10]), torch.tensor([[7.0]]))  # a solver that keeps less
    later = Kept(kept.rows, kept.places)
    own = later.of("head", torch.tensor([1]))
    assert later.rows[own].tolist() == [[7, 0]]
    assert later.rows[later.of("train", torch.tensor([2]))].tolist() == [[1, 2]]


def test_rows_that_follow_others() -> None:
    one, two = ClientModels.alike(torch.ones(1, 2), 2), ClientModels.of(torch.zeros(1, 2))
    assert one.followed(two).all().tolist() == [[1, 1], [1, 1], [0, 0]]


def last(name: str, rounds: int, *overrides: str) -> Any:
    """The state of a method in which everybody takes part, after some rounds."""
    fed, method = federation(), keeping(configured(name, *overrides))
    return simulate(method, rounds_of(fed)[:rounds], kind=LoopEngine)[0][-1]


@pytest.mark.full
@pytest.mark.parametrize("solver", ["adam", "adagrad", "momentum"])
def test_rounds_of_a_client_alone_are_one_long_round(solver: str) -> None:
    """Two rounds of one pass with all examples are one round of two, only with what is kept."""
    how = (f"solver={solver}", "solver.lr=0.05", "solver.batch_size=null")
    whole = last("local", 1, *how, "solver.epochs=2")
    apart = last("local", 2, *how, "solver.epochs=1", "solver.keep=client")
    anew = last("local", 2, *how, "solver.epochs=1")
    (name,) = (key for key, value in fields_of(anew).items() if isinstance(value, ClientModels))
    want, got, other = (getattr(state, name).all() for state in (whole, apart, anew))
    assert torch.equal(got, want)
    assert not torch.allclose(other, want, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", EACH)
def test_every_method_keeps_or_says_why_not(name: str) -> None:
    rounds = rounds_of(federation(), participation=0.5)[:3]
    if name in REFUSE:
        with pytest.raises(ConfigError, match=r"solver(\.keep|\.momentum)?=\S+ is not allowed"):
            configured(name, *ADAM, "solver.keep=client")
        return
    base = configured(name, *ADAM, "solver.keep=client")
    _, costs = simulate(configured(name, *ADAM), rounds)
    method = keeping(base)
    if not isinstance(method, _Keeping):
        return  # its solvers are its own
    whole, others = simulate(method, rounds)
    # nothing is sent, and the first round is that of the method itself
    sent = ("models_down", "models_up", "scalars_up")
    assert [[getattr(c, s) for s in sent] for c in costs[:2]] == [
        [getattr(c, s) for s in sent] for c in others[:2]
    ]
    # it continues from a file to the same bits
    rest, _ = simulate(method, rounds[-1:], copied(whole[-2]))
    assert same(rest[-1], whole[-1])


def test_a_run_that_is_continued_goes_on_with_what_was_kept() -> None:
    rounds = rounds_of(federation())[:2]
    plain, _ = simulate(configured("ifca", *ADAM), rounds)
    kept, _ = simulate(keeping(configured("ifca", *ADAM, "solver.keep=client")), rounds)
    models = [[state.models for state in states] for states in (plain, kept)]
    torch.testing.assert_close(models[0][0], models[1][0])
    assert not torch.allclose(models[0][1], models[1][1], atol=1e-4)


def test_the_key_makes_the_clients_of_any_method_keep() -> None:
    job = build(config_of("ifca", "solver=adam", "solver.lr=0.01", "solver.keep=client"))
    assert isinstance(job.algorithm, _Keeping)
    assert (job.algorithm.slots, job.algorithm.counts) == (2, True)
    assert not isinstance(build(config_of("ifca")).algorithm, _Keeping)
