"""Models that must differ where a method begins."""

from __future__ import annotations

from torch import Tensor

from fedclust.helpers.errors import ConfigError

_ROUNDING = 1e-5


def check_apart(found: Tensor, offer: str = "") -> None:
    """Refuse models that begin alike, for a method that tells clusters apart by nothing else: it
    would be FedAvg.

    Args:
        found: [K, ...] what the method tells the models apart by: their parameters or their losses.
        offer: what else can be taken, as a user would type it; "" for nothing.

    Raises:
        ConfigError: two or more models are all equal, up to rounding.
    """
    apart, size = (found - found[0]).abs().max(), found.abs().max()
    if len(found) > 1 and bool(apart <= _ROUNDING * size):
        raise ConfigError(
            f"the {len(found)} models of the clusters begin alike, so that clusters would never "
            "differ (the network sets its own weights, or weights= does): take "
            f"{offer and offer + ', or '}weights= of a file without the last layer, which is then "
            "drawn for every model"
        )
