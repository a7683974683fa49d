"""How far the present request to an engine is: engines note it, whoever shows a live line reads it.

Noting is an assignment, without lock or wait: of a GPU it is what the host has handed over.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Meter:
    """What is computed at the moment.

    Attributes:
        doing: in words; "" between two requests.
        unit: what is counted: clients, or models that meet all clients.
        step, steps: local steps, or parts of the examples; 0 where nobody counts.
    """

    doing: str = ""
    unit: str = "clients"
    done: int = 0
    total: int = 0
    step: int = 0
    steps: int = 0

    def begin(self, doing: str, total: int, unit: str = "clients") -> None:
        """A request begins, or counts something else than it first said."""
        self.doing, self.total, self.unit = doing, total, unit
        self.done = self.step = self.steps = 0

    def add(self, count: int) -> None:
        """So many more are done."""
        self.done += count
        self.step = self.steps = 0

    def end(self) -> None:
        """The request is answered."""
        self.doing = ""


meter = Meter()
