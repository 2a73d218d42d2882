"""Geometry of stacked bar charts; `parts.html` draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

#: One bar: its label, and its parts by name.
BarValues: TypeAlias = tuple[str, Mapping[str, float]]

WIDTH, HEIGHT = 1100, 200
#: Space for the labels, and for the largest number.
_LABEL_SPACE, _NUMBER_SPACE = 24, 18
#: Maximum number of labels side by side, and number of colours.
_MAX_LABELS, _MAX_COLOURS = 12, 8


@dataclass(frozen=True, slots=True)
class BarSegment:
    """One part of a bar: colour number, position and size."""

    colour: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its text, its label's position, and whether the label is drawn."""

    label: str
    text: str
    x: float
    labelled: bool
    pieces: list[BarSegment] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of stacked bars; `legend` has the colour of each part, `most` the height of the highest bar."""

    title: str
    most: float
    legend: dict[str, int]
    bars: list[Bar]
    width: int = WIDTH
    height: int = HEIGHT


def chart(title: str, values: Sequence[BarValues]) -> Chart | None:
    """Return a chart of stacked bars, their parts in order of first appearance; None if there are no values."""
    most = max((sum(parts.values()) for _, parts in values), default=0)
    if not most:
        return None
    legend = {
        name: n % _MAX_COLOURS for n, name in enumerate(dict.fromkeys(name for _, parts in values for name in parts))
    }
    step, every = WIDTH / len(values), -(-len(values) // _MAX_LABELS)
    bars = []
    for at, (label, parts) in enumerate(values):
        text = ", ".join(f"{name} {count:,.0f}" for name, count in parts.items() if count) or "none"
        bar = Bar(label, text, round((at + 0.5) * step, 1), at % every == 0)
        y = float(HEIGHT - _LABEL_SPACE)
        for name, colour in legend.items():
            height = parts.get(name, 0) / most * (HEIGHT - _LABEL_SPACE - _NUMBER_SPACE)
            y -= height
            if height:
                bar.pieces.append(BarSegment(colour, round((at + 0.12) * step, 1), round(y, 1), step * 0.76, height))
        bars.append(bar)
    return Chart(title, most, legend, bars)
