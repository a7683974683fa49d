"""The tables and verdicts, from what the checks have told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import exp, log
from typing import Any

from benchmarks.check_gpu.paths import PATHS
from benchmarks.check_gpu.projection import WHOLE, projected
from fedclust.engines.fused.cuda.measured import FASTER, SLOWER, WRONG

Row = Mapping[str, Any]
_NOISE = 1.02  # a path is faster from this ratio on
_WAYS = ("all", "PyTorch", "high", "bf16", "vmap", "plain loop", "CPU, one call")
_SENTENCE = {"missing": "not checked", "no time": "no time left"}
NO_GPU = "no GPU"


class Report:
    """What is to be said of all rows.

    Args:
        rows: what the checks told, with `kind` and `name`.
        on_gpu: whether there was one; without, nothing is said of speed.
    """

    def __init__(self, rows: Sequence[Row], *, on_gpu: bool) -> None:
        self._rows, self._on_gpu = rows, on_gpu

    def _of(self, kind: str) -> dict[str, list[Row]]:
        """The rows of a kind by name."""
        found: dict[str, list[Row]] = {}
        for row in self._rows:
            if row["kind"] == kind:
                found.setdefault(row["name"], []).append(row)
        return found

    @cached_property
    def _workloads(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By workload and way all that is known."""
        known: dict[str, dict[str, dict[str, Any]]] = {}
        for name, rows in self._of("workloads").items():
            ways = known.setdefault(name, {})
            for row in rows:
                if "way" in row:
                    ways.setdefault(row["way"], {}).update(row)
        return known

    def wrong(self) -> list[str]:
        """What gives other numbers than the CPU, or ends in an error."""
        found = []
        for row in self._rows:
            about = f"{row['kind']} {row['name']}"
            if row.get("right") is False:
                why = row.get("labels") or f"{_number(row.get('apart'))} apart"
                found.append(f"{about}, {row['way']}: {why}")
            elif row.get("state") == "failed" or ("error" in row and "state" not in row):
                found.append(f"{about}, {row.get('way', 'all')}: {row['error']}")
        return found

    def verdicts(self) -> Iterator[tuple[str, str, str, str]]:
        """Of every fast path: its key, how far it is from the CPU, how much faster, the verdict."""
        for path in PATHS:
            ratios, worst, bad = {}, 0.0, False
            for name, ways in self._workloads.items():
                every, other = ways.get("all", {}), ways.get(f"without {path}", {})
                if path not in every.get("paths", ()) or "right" not in every:
                    continue
                worst = max(worst, every["apart"])
                bad = bad or (not every["right"] and other.get("right", True))
                if "rate" in every and "rate" in other:
                    ratios[name] = every["rate"] / other["rate"]
            refused = [row for row in self._of("kernel").get(path, ()) if row.get("right") is False]
            shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
            yield path, _number(worst), shown, self._verdict(ratios, bad=bad or bool(refused))

    def _verdict(self, ratios: Mapping[str, float], *, bad: bool) -> str:
        if not self._on_gpu:
            return NO_GPU
        if bad:
            return WRONG
        if not ratios:
            return "not taken"
        mean = exp(sum(map(log, ratios.values())) / len(ratios))
        return FASTER if mean >= _NOISE else SLOWER

    def text(self) -> str:
        """Everything, in Markdown."""
        parts = [
            self._machine(),
            self._verdict_table(),
            self._workload_table(),
            self._memory_table(),
            self._engine_table(),
            self._table2(),
            self._algorithm_table(),
            self._remarks(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _machine(self) -> str:
        facts: list[str] = []
        for row in self._of("machine").get("machine", ()):
            if row.get("way") == "machine":
                facts += [
                    f"{key} {row[key]}" for key in ("GPU", "GiB", "PyTorch", "CUDA") if key in row
                ]
            elif "gflops" in row:
                facts.append(f"{row['way']} products {row['gflops'] / 1000:,.1f} TFLOP/s")
            elif "gbytes" in row:
                facts.append(f"memory {row['gbytes']:,.0f} GB/s")
        title = (
            "# fedclust on a GPU" if self._on_gpu else "# Without a GPU: only that all of it runs"
        )
        return f"{title}\n\n{'; '.join(facts)}"

    def _verdict_table(self) -> str:
        lines = []
        for path, worst, ratios, verdict in self.verdicts():
            path_off, advice = PATHS[path].off, ""
            if verdict in (SLOWER, WRONG):
                advice = f"to be switched off: {path_off}" if path_off else "stays off on this card"
            elif verdict == FASTER and not path_off:
                advice = "on from now on, on this card"
            lines.append((PATHS[path].name, worst, ratios, verdict, advice))
        head = ("fast path", "from the CPU", "times as fast with it", "verdict", "what follows")
        return "## Verdicts\n\n" + _table(head, lines)

    def _workload_table(self) -> str:
        lines = []
        for name, ways in self._workloads.items():
            line = [name]
            for way in _WAYS:
                found = ways.get(way, {})
                rate = f"{found['rate']:,.0f}" if "rate" in found else found.get("error", "")[:30]
                line.append(rate + (" wrong" if found.get("right") is False else ""))
            lines.append(line)
        head = ("", "all fast paths", "PyTorch alone", "high", "bf16", "vmap", "plain loop", "CPU")
        return "## Steps (W5: losses) per second\n\n" + _table(head, lines) if lines else ""

    def _memory_table(self) -> str:
        lines = [
            (name, f"{ways['all']['peak_mib']:,.0f}", _number(ways["all"]["apart"]))
            for name, ways in self._workloads.items()
            if "peak_mib" in ways.get("all", {})
        ]
        head = ("", "peak MiB of a call", "from the CPU, of the way")
        return "## Memory and rounding\n\n" + _table(head, lines) if lines else ""

    def _engine_table(self) -> str:
        models = self._of("engines")
        ways = list(dict.fromkeys(r["way"] for rows in models.values() for r in rows if "way" in r))
        lines = []
        for name, rows in models.items():
            found = {row["way"]: row for row in rows if "way" in row}
            cells = [_number(found.get(way, {}).get("apart")) for way in ways]
            bad = [" wrong" if found.get(way, {}).get("right") is False else "" for way in ways]
            lines.append((name, *(a + b for a, b in zip(cells, bad, strict=True)), _state(rows)))
        head = ("from the plain engine on the CPU", *ways, "")
        return "## Engines\n\n" + _table(head, lines) if lines else ""

    def _table2(self) -> str:

        lines, total = [], 0.0
        for name, rows in self._of("table2").items():
            rounds = {row["round"]: row["seconds"] for row in rows if "round" in row}
            peak = max((row.get("peak_mib", 0.0) for row in rows), default=0.0)
            whole = projected(rounds)
            total += whole or 0.0
            shown = " ".join(f"{seconds:.1f}" for seconds in rounds.values())
            hours = "" if whole is None else f"{whole / 60:.1f}"
            lines.append((name, shown, hours, f"{peak:,.0f}", _state(rows)))
        head = ("arm", "seconds of its first rounds", f"minutes of all {WHOLE}", "peak MiB", "")
        text = "## LCFL Table II at full size, five seeds together, tests and files included\n\n"
        said = f"\n\nAll arms: {total / 60:.0f} minutes." if self._on_gpu else ""
        return text + _table(head, lines) + said if lines else ""

    def _algorithm_table(self) -> str:
        lines = []
        for name, rows in self._of("algorithms").items():
            for row in rows:
                if "apart" in row:
                    verdict = "same" if row["right"] else row["labels"] or "wrong"
                    lines.append((name, _number(row["apart"]), verdict))
            if state := _state(rows):
                lines.append((name, "", state))
        return (
            "## Algorithms\n\n" + _table(("", "test loss from the CPU", "rounds"), lines)
            if lines
            else ""
        )

    def _remarks(self) -> str:
        said = [line for row in self._rows for line in row.get("said", ())]
        notes = [row["note"] for row in self._rows if "note" in row]
        lines = [f"- wrong: {line}" for line in self.wrong()]
        lines += [f"- {line}" for line in dict.fromkeys([*notes, *said])]
        return "## Remarks\n\n" + "\n".join(lines) if lines else ""


def _state(rows: Sequence[Row]) -> str:
    """Why there is less than there should be."""
    ends = [row for row in rows if row.get("state") not in (None, "begun", "done")]
    if not ends:
        return ""
    last = ends[-1]
    return f"{_SENTENCE.get(last['state'], last['state'])}: {last.get('error', '')}".rstrip(": ")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}" if value else "0"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
