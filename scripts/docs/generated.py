"""The pages that the site makes of other files: config files, keys, metrics, README, notebooks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields

from fedclust.config.options import top_options
from fedclust.config.schema import RunConfig, keys
from fedclust.metrics import METRICS
from scripts.docs import choices
from scripts.docs.links import PAGES, ROOT, for_site

_PARTS = {
    "setting": "changes a result; every method of a comparison meets it alike",
    "method": "changes a result; an option of the method",
    "means": "how it is computed; changes a result by rounding at most",
    "beside": "changes no result",
}


def pages() -> dict[str, Callable[[], str]]:
    """What makes the Markdown of every generated page, by its place below docs/."""
    made: dict[str, Callable[[], str]] = {
        f"reference/config/{group}.md": lambda group=group: choices.page(group)  # type: ignore[misc]
        for group in choices.group_names()
    }
    made["reference/config/index.md"] = top_level
    made["reference/metrics.md"] = metrics
    for file, page in PAGES.items():
        if file.endswith(".ipynb"):
            made[page] = lambda file=file: notebook(file)  # type: ignore[misc]
        elif page != "index.md":
            made[page] = lambda file=file, page=page: for_site(  # type: ignore[misc]
                (ROOT / file).read_text(), file, page
            )
    return made


def top_level() -> str:
    """The page of the keys of the top level and of all groups."""
    known = keys()
    groups = choices.group_names()
    defaults = {
        one.name: one.default_factory() if one.default is MISSING else one.default  # type: ignore[misc]
        for one in fields(RunConfig)
    }
    rows = []
    for name, key in known.items():
        if name in groups or name in ("common", "data", "stop", "tags", "report"):
            continue
        shown = json.dumps(defaults[name]).strip('"')  # as YAML writes it
        allowed = f" Allowed: {key.check.allowed}." if key.check and " | " not in key.doc else ""
        doc = f"{key.doc}.{allowed}".replace("|", "\\|")
        rows.append(f"| `{name}` | `{shown}` | {doc} | {key.part} |")
    below = [
        f"| `{name}` | `{option.default}` | {option.comment} |"
        for name, option in top_options().items()
        if name.startswith("common.")
    ]
    below += [
        "| `data.root` | `FEDCLUST_DATA`, else `data` | folder of the data sets |",
        "| `data.download` | `false` | true: fetch what is missing |",
        "| `stop.hours` | `null` | the only key of `stop`: simulated hours after which a job ends, "
        "see [the clock](../../how-to/clock.md) |",
        "| `tags.NAME` | | a note for trackers and the report: `+tags.note=first` |",
        "| `report` | `null` | what the report compares with; set by experiments, see "
        "[Comparisons](../../statistics.md) |",
    ]
    table = [f"| [{group}]({group}.md) | {choices.about(group)} |" for group in groups]
    return (
        "\n\n".join(
            [
                "# Keys of a config",
                "A job is described by keys and by one choice in every group. "
                "`fedclust run KEY=VALUE GROUP=CHOICE GROUP.OPTION=VALUE` sets them; "
                "`fedclust run --cfg job …` prints the whole config. This page and those of the "
                "groups are made from the config files and from the code that reads them.",
                "## Groups",
                "\n".join(["| group | what is chosen |", "|---|---|", *table]),
                "## Keys of the top level",
                "\n".join(["| key | default | what it is | part |", "|---|---|---|---|", *rows]),
                "The part says where a key counts:",
                "\n".join(f"- **{part}**: {said}." for part, said in _PARTS.items()),
                "## Below a key",
                "\n".join(["| key | default | what it is |", "|---|---|---|", *below]),
            ]
        )
        + "\n"
    )


def metrics() -> str:
    """The page of every number that a run records."""
    rows = [
        f"| `{name}` | {meaning.text} | {meaning.unit} | "
        f"{'' if meaning.better == 'neither' else meaning.better} |"
        for name, meaning in METRICS.items()
    ]
    return (
        "\n\n".join(
            [
                "# Recorded numbers",
                "Every number that a run may record in `rounds.csv`, one value per seed and "
                "round. What purity, ARI, NMI, matched accuracy, churn and discrepancy measure, "
                "with an example: [What the metrics mean](../metrics.md). A method of your own "
                "[adds its own](../how-to/own-metric.md).",
                "\n".join(["| name | what it is | unit | better |", "|---|---|---|---|", *rows]),
            ]
        )
        + "\n"
    )


def notebook(file: str) -> str:
    """The cells of a notebook, which is stored without outputs, as a page."""
    cells = json.loads((ROOT / file).read_text())["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, *rest = parts
    note = f"This page is the notebook `{file}` of the sources, without outputs."
    head, _, below = title.partition("\n")
    return "\n\n".join([head, note, below.strip(), *rest]) + "\n"
