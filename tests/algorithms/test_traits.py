"""What methods say of themselves; layers around them say the same but for what they name."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from digits_jobs import ALGORITHMS, config_of

import fedclust
from fedclust.algorithms.layers.compressing import _Compressing
from fedclust.algorithms.layers.finetune import FineTune
from fedclust.algorithms.layers.keeping import _Keeping
from fedclust.algorithms.layers.last_local import LastLocal
from fedclust.algorithms.layers.newcomers import Newcomers
from fedclust.algorithms.layers.timing import Plain, _Timed
from fedclust.algorithms.layers.with_norm import _WithNorm
from fedclust.algorithms.layers.with_server import WithServer
from fedclust.config.objects import Objects
from fedclust.core.traits import Traits, traits_of
from fedclust.core.wrapper import Wrapper
from fedclust.updates.compressions import Sign
from fedclust.updates.servers import Adam

NAMES = [one.name for one in fields(Traits)]
CHANGED: dict[type[Wrapper], set[str]] = {
    FineTune: set(),
    LastLocal: set(),
    _WithNorm: set(),
    _Keeping: {"slots"},
    _Compressing: set(),
    _Timed: set(),
    WithServer: {"moments"},
    Newcomers: {"unnoised", "unused"},
}


def layers(method: Any) -> list[Wrapper]:
    solver = Objects().make(config_of("finetune")["algorithm"], "algorithm").solver
    descriptor = Objects().make(config_of("newcomers")["algorithm"], "algorithm").descriptor
    plain = Plain(solver=solver, received=4.0, sent=4.0)
    made: list[Wrapper] = [
        FineTune(base=method, solver=solver),
        LastLocal(base=method),
        _WithNorm(base=method, norm="local"),
        _Keeping(base=method, slots=3, counts=True),
        Newcomers(base=method, descriptor=descriptor),
        _Compressing(base=method, compression=Sign()),
        _Timed(base=method, devices={}, plain=plain, deadline=None, over=0.0, num_params=1),
    ]
    if traits_of(method).averages:
        made.append(WithServer(base=method, server=Adam()))
    return made


@pytest.mark.thinned
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_layer_keeps_what_it_does_not_name(name: str) -> None:
    method = Objects().make(config_of(name)["algorithm"], "algorithm")
    if isinstance(method, Wrapper):
        method = method.base
    own = traits_of(method)
    assert own == Traits(**{one: getattr(method, one, getattr(Traits(), one)) for one in NAMES})
    for layer in layers(method):
        found, changed = traits_of(layer), CHANGED[type(layer)]
        kept = {one: getattr(found, one) for one in changed}
        assert found == replace(own, **kept)
    kept_by_clients, unnoised = traits_of(layers(method)[3]), traits_of(layers(method)[4])
    assert (kept_by_clients.slots, "of their data" in unnoised.unnoised) == (3, True)


def test_every_layer_is_tried() -> None:
    folder = Path(fedclust.__file__).parent / "algorithms" / "layers"
    found = {
        name
        for file in folder.glob("*.py")
        for name in re.findall(r"class (\w+)\(Wrapper\)", file.read_text(encoding="utf-8"))
    }
    assert found == {one.__name__ for one in CHANGED}


def test_nobody_asks_for_a_trait_with_a_default_of_its_own() -> None:
    pattern = re.compile(rf"getattr\([^()]*, \"({'|'.join(NAMES)})\"")
    root = Path(fedclust.__file__).parent
    found = [
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if pattern.search(file.read_text(encoding="utf-8"))
    ]
    assert found == []
