"""`weblake demo`: an end-to-end demo on one machine, against an included site."""

from __future__ import annotations

from pathlib import Path


def run_demo(to: Path | None = None, *, as_json: bool = False) -> None:
    """Run the demo and show its results.

    Args:
        to: The dataset's root, created if missing; existing loads are kept. By default a new directory below the
            current one: `weblake-demo`, then `weblake-demo-2` and so on.
        as_json: Whether to print one JSON object, `{"root", "loads", "usage", "activity", "seconds"}`, instead of
            tables.

    Raises:
        InvalidOption: `to` is a URL.
        FeatureMissing: The extra `weblake[local]` is not installed.
        StorageRefused: The directory cannot be written, or another demo is running in it.
        WeblakeError: Any other failure of a step.
    """
    from weblake.demo import steps, summary

    demo = steps.run_steps(to)
    if as_json:
        summary.show_json(demo)
    else:
        summary.show(demo)
