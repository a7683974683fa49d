"""Freeze a version of the benchmark: what decides its numbers, taken from the jobs of one method.

    python -m scripts.papers.freeze outputs/benchmark/v1 v1

Writes fedclust/benchmark/v1.json and prints the digest, which belongs into `report.frozen` of the
experiment. A version that is frozen is never written again: a change is the next version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedclust.benchmark import frozen
from fedclust.config.versions import ROUNDS
from fedclust.helpers.errors import ConfigError, UserError, require
from fedclust.helpers.files import atomic_write
from fedclust.report.reading import job_folders


def freeze(folder: Path, file: Path) -> str:
    """Write the version's file from the jobs of a folder; returns its digest.

    Raises:
        ConfigError: for a version that is frozen already, or jobs that disagree.
    """
    require(not file.exists(), "version", file.stem, "one that is not frozen yet")
    federations: dict[str, dict[str, object]] = {}
    for job in job_folders(folder):
        case, facts = frozen.case_of(job), frozen.facts_of(job)
        if federations.setdefault(case, facts) != facts:
            raise ConfigError(f"{job} is not as the other jobs of {case}")
    content = {"rounds": ROUNDS, "federations": federations}
    atomic_write(file, json.dumps(content, indent=1, sort_keys=True) + "\n")
    return frozen.digest_of(content)


def main(given: Sequence[str]) -> int:
    """Freeze; returns the exit status."""
    try:
        folder, name = given
        file = Path(frozen.__file__).with_name(f"{name}.json")
        print(f"{file}: {freeze(Path(folder), file)}")
    except UserError as error:
        print(f"freeze: {error}", file=sys.stderr)
        return UserError.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
