"""Architectures: layer sequences whose parameters live outside, in flat tensors."""
