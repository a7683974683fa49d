"""Three engines of one meaning: `loop` (reference), `vmap` (any model), `fused` (fastest)."""

from fedclust.engines.choose import ENGINES, describe, make_engine, simulated

__all__ = ["ENGINES", "describe", "make_engine", "simulated"]
