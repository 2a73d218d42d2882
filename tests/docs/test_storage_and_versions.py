"""The Python blocks of the pages "Object stores" and "Upgrade and compatibility" that need no account."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_blocks import codes

import weblake

if TYPE_CHECKING:
    from weblake.testing import WeblakeService, WeblakeSite

TASKS = Path(__file__).parents[2] / "docs" / "site" / "tasks"


def block(page: str, naming: str) -> str:
    """Return the Python block of a page that contains this text."""
    (code,) = [each for each in codes((TASKS / page).read_text(), "python") if naming in each]
    return code


@pytest.mark.system
def test_a_path_object_has_the_endpoint_and_the_credentials(
    s3_root: str, weblake_service: WeblakeService, weblake_site: WeblakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = block("object-stores.md", "UPath").replace("https://minio.example.com", os.environ["AWS_ENDPOINT_URL"])
    code = code.replace("s3://lake/web", s3_root).replace("https://example.org/", weblake_site.urls()[0])
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in weblake_service.environment().items():
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {}
    exec(compile(code, "object-stores.md", "exec"), names)
    assert weblake.read(names["root"]).count_rows() == 1  # type: ignore[arg-type]


def test_the_version_of_the_columns_is_that_of_the_table(
    weblake_service: WeblakeService,
    weblake_site: WeblakeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    weblake.land_batch(weblake_site.urls()[:1], to="lake", client=weblake_service.client())
    exec(compile(block("upgrade.md", "schema_version"), "upgrade.md", "exec"), {})
    (now,) = re.findall(r"^\| (\d+) \(now\) \|", (TASKS / "upgrade.md").read_text(), re.MULTILINE)
    assert capsys.readouterr().out.split()[-1] == now
