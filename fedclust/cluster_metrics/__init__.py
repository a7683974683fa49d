"""Dissimilarities of clients, one file each.

Each is a frozen dataclass with `__call__(engine, models, common, clients, rnd) -> [C, C]` float32,
symmetric with a zero diagonal, and `transfers(num_clients) -> (models down, models up, numbers
up)`, what it sends.
"""
