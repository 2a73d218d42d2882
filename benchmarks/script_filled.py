"""The pages of a WCXB sample that count as filled by scripts: `uv run python benchmarks/script_filled.py FOLDER`.

FOLDER has `html/ID.html.gz` and `ground-truth/ID.json`. A page with a text in the ground truth that is named here is
rendered without need; the exit code is then 1.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.script_filled import script_reason
from weblake_service.page.shadow_roots import unwrap_shadow_roots


def main(folder: Path) -> int:
    """Print the pages, how many they are, and the time that a verdict takes."""
    wrong, found, seconds = 0, 0, 0.0
    pages = sorted(folder.glob("html/*.html.gz"))
    for path in pages:
        tree = LexborHTMLParser(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"))
        began = time.process_time()
        unwrap_shadow_roots(tree)
        reason = script_reason(tree)
        seconds += time.process_time() - began
        if reason:
            truth = json.loads((folder / "ground-truth" / path.name.replace(".html.gz", ".json")).read_text())
            has_text = bool((truth["ground_truth"]["main_content"] or "").strip())
            found, wrong = found + 1, wrong + has_text
            print(f"{path.name}: {reason}{', but it has a text' if has_text else ''}")
    print(f"{found} of {len(pages)} pages, {wrong} of them with a text; {seconds / len(pages) * 1000:.2f} ms each")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
