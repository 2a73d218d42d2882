"""The table and the chart of a benchmark, as docs/development/benchmarks.md shows them."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs" / "development"
#: Between these lines of benchmarks.md the figures are written anew; the words around them are people's.
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
COLORS = {"weblake": "#2563eb", "limit": "#9ca3af"}


@dataclass(frozen=True)
class Figure:
    """One measured number and its goals."""

    name: str
    value: float
    must: float
    aim: float
    against: str = ""
    more: bool = False  # whether more is better

    def _holds(self, goal: float) -> bool:
        return self.value >= goal if self.more else self.value <= goal

    @property
    def verdict(self) -> str:
        return "aim" if self._holds(self.aim) else "must" if self._holds(self.must) else "missed"

    def line(self) -> str:
        against = f" ({self.against})" if self.against else ""
        return f"{self.name}{against}: {self.value:.3g} (must {self.must:g}, aim {self.aim:g}): {self.verdict}"


def write_report(figures: list[Figure], tables: list[Any], rounds: int) -> None:
    """Replaces the figures in docs/development/benchmarks.md and draws the chart beside it."""
    lines = [machine(rounds), ""]
    lines += ["| figure | must | aim | measured | holds |", "|---|---|---|---|---|"]
    for each in figures:
        against = f" ({each.against})" if each.against else ""
        lines.append(f"| {each.name}{against} | {each.must:g} | {each.aim:g} | **{each.value:.3g}** | {each.verdict} |")
    for table in tables:
        lines += ["", f"### {table.job}", "", "| contender | wall s | CPU s | peak MB above imports | file MB | rows |"]
        lines.append("|---|---|---|---|---|---|")
        for name in sorted(table.runs, key=lambda each: table.median(each, "wall")):
            row = [table.median(name, "wall"), table.median(name, "cpu"), table.grown(name)]
            row += [table.median(name, "bytes") / 1e6]
            cells = " | ".join(f"{value:.2f}" if value < 100 else f"{value:.0f}" for value in row)
            lines.append(f"| {name} | {cells} | {table.median(name, 'rows'):.0f} |")
        (DOCS / "charts").mkdir(exist_ok=True)
        (DOCS / "charts" / f"landing-{table.job}.svg").write_text(chart(table))
        lines += ["", f"![{table.job}: seconds to the file](charts/landing-{table.job}.svg)"]
    page = DOCS / "benchmarks.md"
    text = page.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    page.write_text("\n".join([before, "", *lines, "", after]))


def chart(table: Any) -> str:
    """Bars of wall time, the shortest first."""
    names = sorted(table.runs, key=lambda each: table.median(each, "wall"))
    most = max(table.median(name, "wall") for name in names)
    bars, height = [], 24
    for number, name in enumerate(names):
        seconds, y = table.median(name, "wall"), 30 + number * height
        color = COLORS.get(name.split("_")[0], "#f59e0b")
        width = max(1.0, 420 * seconds / most)
        bars.append(f'<text x="180" y="{y + 14}" text-anchor="end">{name}</text>')
        bars.append(f'<rect x="190" y="{y}" width="{width:.1f}" height="18" fill="{color}"/>')
        bars.append(f'<text x="{196 + width:.1f}" y="{y + 14}">{seconds:.2f} s</text>')
    title = f'<text x="10" y="18" font-weight="bold">{table.job}: seconds from the job\'s end to the file</text>'
    size = f'width="700" height="{40 + len(names) * height}"'
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="#111"'
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{back}{title}{"".join(bars)}</svg>\n'


def machine(rounds: int) -> str:
    """When and on what it was measured, as a sentence."""
    return f"Measured {datetime.now(timezone.utc):%Y-%m-%d}, medians of {rounds} rounds, on {_machine()}."


def _machine() -> str:
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "",
    )
    load = os.getloadavg()[2]
    return (
        f"{os.cpu_count()} cores ({model or platform.machine()}), load {load:.1f}, Python {platform.python_version()}"
    )
