"""The fused engine: stacked rows, hand-written backward, updates fused into the products."""

from fedclust.engines.fused.backend import FusedBackend

__all__ = ["FusedBackend"]
