"""What a part says of itself, for those who check whether parts fit each other.

A class states what differs from the defaults by an attribute, or a property, of the same name; a
layer around a method has `traits` of its own, those of the method with what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from fedclust.helpers.errors import require


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a part says of itself.

    Attributes:
        averages: whether models are replaced by means of what participants made of them, as
            `fedclust.algorithms.steps` does: then the server can take another step along them.
        unnoised: what clients send that no noise is added to, with a server that is private; "" for
            nothing.
        sends: whether clients send anything that training has made.
        whole: why what clients send may not arrive compressed, in words; "" where it may.
        steps_by_gradients: key and value by which the server steps against gradients, which move no
            running statistics; "" where it does not.
        several: what keeps a client's running statistics from staying with it, in words; "" for
            nothing.
        serves_mixtures: whether a client is served several models at once, each with running
            statistics of its own.
        needs_classes: whether it looks at classes, which another task has not.
        needs_softmax: whether it reads the losses of a softmax without weights.
        moments: numbers that a server remembers of every parameter of a model.
        slots: numbers that clients keep of every parameter of a model.
        apart: `clusters` where a client is sent nothing but the model of its cluster, and clusters
            exchange nothing, but in rounds in which clients are asked for more than training or in
            which the number of clusters changes; `clients` where each trains alone; "" where it
            waits for more. Then a clock may have `wait=cluster`.
        unused: keys of a run that its options leave without effect, and why.
    """

    averages: bool = False
    unnoised: str = "more than updates to be averaged, as far as anybody has said"
    sends: bool = True
    whole: str = ""
    steps_by_gradients: str = ""
    several: str = ""
    serves_mixtures: bool = False
    needs_classes: bool = False
    needs_softmax: bool = False
    moments: int = 0
    slots: int = 1
    apart: str = ""
    unused: Mapping[str, str] = field(default_factory=dict)


def traits_of(part: object) -> Traits:
    """What a part says of itself; the defaults where it says nothing."""
    own = getattr(part, "traits", None)
    if isinstance(own, Traits):
        return own
    said = [one.name for one in fields(Traits) if hasattr(part, one.name)]
    return Traits(**{name: getattr(part, name) for name in said})


def check_averages(key: str, given: str, part: object, name: str) -> None:
    """Refuse what is done to means of models, by a key and the value `given`, of a method that
    makes none. Raises `ConfigError` naming the key.
    """
    allowed = f"mean, since {name} does not replace models by means of the participants'"
    require(traits_of(part).averages, key, given, allowed + or_says(part, "an option aggregation"))


def or_says(part: object, says: str) -> str:
    """How a method of a user's own says that it does after all; "" for one of fedclust."""
    while (base := getattr(part, "base", None)) is not None:  # inside layers
        part = base
    ours = type(part).__module__.partition(".")[0] == "fedclust"
    return "" if ours else f"; if it does, it says so by {says}"
