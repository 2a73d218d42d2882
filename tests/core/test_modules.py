"""Tests that the modules of the package import on every Python and with every dependency that it declares."""

import pytest
from module_imports import import_all


@pytest.mark.system
@pytest.mark.smoke
def test_every_module_imports() -> None:
    assert import_all("weblake") > 50
    assert import_all("weblake_service") > 100
