"""What the tests share."""

from pathlib import Path

import pytest


@pytest.fixture
def urls(weblake_environment, weblake_site, tmp_path) -> Path:
    """Return a list of the test site's news; weblake_environment leads pages.py to the test's service."""
    path = tmp_path / "urls.txt"
    path.write_text("\n".join(weblake_site.urls("/news/")))
    return path
