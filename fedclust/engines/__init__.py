"""Three engines with one meaning: `loop` (reference), `vmap` (any model), `fused` (known layers,
fastest).
"""
