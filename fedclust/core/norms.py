"""What becomes of the running statistics of batch normalisation: a row for every value of `norm`.

The help, the checks, the layer around the method and the tests take the modes from here. A mode
that these answers cannot say needs another field, which `algorithms/layers/with_norm.py` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Norm:
    """What becomes of statistics."""

    doc: str = ""  # what it does in a few words, for the help; "" where the name says it
    # whether those that training makes stay with the client; else they are averaged
    stay: bool = False
    affine: bool = False  # whether the parameters of these layers stay too
    # whether a test looks at each client's own, computed from its training examples where it has
    # kept none; else at those of the served model
    own_test: bool = True

    def __post_init__(self) -> None:
        if (self.stay and not self.own_test) or (self.affine and not self.stay):
            raise ValueError("statistics that stay are tested with; parameters stay with them")


NORMS: Mapping[str, Norm] = {
    "average": Norm(own_test=False),
    "local": Norm("they stay with the client", stay=True),
    "fedbn": Norm("the layers' parameters stay, too", stay=True, affine=True),
    "recalibrate": Norm("computed anew before a test"),
}
DOC = " | ".join(f"{name} ({one.doc})" if one.doc else name for name, one in NORMS.items())


def names_of(holds: Callable[[Norm], bool]) -> str:
    """The values of which something holds, in words, for messages."""
    return " or ".join(name for name, one in NORMS.items() if holds(one))


AVERAGED = names_of(lambda one: not one.stay)  # fit where a client trains several models
OF_MODELS = names_of(lambda one: not one.own_test)  # fit where models are mixed
