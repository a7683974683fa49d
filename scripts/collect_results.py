"""Copies what a report says into docs/results, small enough for a repository.

    python scripts/collect_results.py outputs/lcfl/table2-laptop "fedclust run …"

writes docs/results/lcfl/table2-laptop.md: the commands, the headline, claims, recovery and cost
tables, and the curves at half size beside it. The text around it is written by hand, in
docs/results/<paper>.md.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import yaml
from PIL import Image

TABLES = ("table", "over_rounds", "claims", "federation", "recovery", "cost")
NOT_SHOWN = ("flow_", "contingency", "distance")
MOST_WIDTH = 1100  # pixels


def main(folder: Path, commands: list[str]) -> Path:
    """The page made from the report in `folder`, for the commands that made the runs."""
    report = folder / "report"
    target = Path("docs", "results", *folder.parts[-2:]).with_suffix(".md")
    pictures = target.with_suffix("")
    shutil.rmtree(pictures, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load(next(folder.rglob("config.yaml")).read_text())
    machine = json.loads(next(folder.rglob("versions.json")).read_text())
    lines = [f"# {(config.get('report') or {}).get('title') or folder.name}", ""]
    lines += [f"    {command}" for command in commands]
    lines += [
        "",
        f"Seeds {', '.join(map(str, config['seeds']))}; {machine['device']}; {_seconds(folder)}.",
        "",
    ]
    # one round is run for the sake of the federation, which is then the result
    for name in TABLES if config["rounds"] > 1 else ("federation", "classes"):
        if name == "over_rounds" and "(paper" not in (report / f"{name}.md").read_text():
            continue
        if (report / f"{name}.md").is_file():
            lines += [(report / f"{name}.md").read_text().strip(), ""]
        if name == "table":
            lines += _figures(report / "figures", pictures)
    target.write_text("\n".join(lines).rstrip() + "\n")
    return target


def _seconds(folder: Path) -> str:
    """The rounds' time of all jobs together."""
    total = 0.0
    for file in folder.rglob("rounds.csv"):
        rows = (line.split(",") for line in file.read_text().splitlines()[1:])
        total += sum(float(value) for _, _, metric, value in rows if metric == "seconds")
    return (
        f"{total / 60:.0f} minutes in all rounds of all jobs, on a machine that did other work too"
    )


def _figures(source: Path, target: Path) -> list[str]:
    lines = []
    target.mkdir()
    for file in sorted(source.glob("*.png")):
        if file.name.startswith(NOT_SHOWN):
            continue
        picture = Image.open(file).convert("RGB")
        factor = min(0.5, MOST_WIDTH / picture.width)
        small = picture.resize(
            (round(picture.width * factor), round(picture.height * factor)), Image.LANCZOS
        )
        packed = io.BytesIO()
        small.quantize(128).save(packed, format="png", optimize=True)
        (target / file.name).write_bytes(packed.getvalue())
        lines += [f"![{file.stem.replace('_', ' ')}]({target.name}/{file.name})", ""]
    return lines


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), sys.argv[2:]))
