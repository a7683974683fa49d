"""Reports that hold results against published ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedclust import papers
from fedclust.report import write
from fedclust.report.spec import Spec
from fedclust.report.write import Contents


def all_contents(folder: Path, outside: str | Path | None = None) -> list[Contents]:
    """As `fedclust.report.write.all_contents`."""
    return write.all_contents(folder, papers, outside)


def contents(folder: Path) -> Contents:
    """As `fedclust.report.write.contents`."""
    return write.contents(folder, papers)


def make_report(folder: Path) -> Path:
    """As `fedclust.report.write.make_report`."""
    return write.make_report(folder, all_contents(folder))


def spec_of(config: Mapping[str, Any]) -> Spec:
    """As `fedclust.report.spec.Spec.of`."""
    return Spec.of(config, papers)
