"""Three engines with one meaning: `loop` (reference), `vmap` (any model), `fused` (known layers,
fastest).
"""

from fedclust.engines.choose import ENGINES, describe, make_engine, simulated

__all__ = ["ENGINES", "describe", "make_engine", "simulated"]
