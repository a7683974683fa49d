"""The fused engine: stacked rows, hand-written backward, updates fused into the products."""

from fedclust.engines.fused.engine import FusedEngine

__all__ = ["FusedEngine"]
