"""Components written as a defs.yaml, loaded as a Dagster project loads them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
import yaml
from dagster.components.testing import create_defs_folder_sandbox
from pydantic import BaseModel

Loaded = tuple[Any, dg.Definitions]


@contextmanager
def loaded(
    kind: str, attributes: Mapping[str, object] | str, files: Mapping[str, str] | None = None
) -> Iterator[Loaded]:
    """The component and its definitions, of a defs.yaml with these attributes (or these lines of them)."""
    lines = attributes if isinstance(attributes, str) else yaml.safe_dump(dict(attributes), sort_keys=False)
    body = textwrap.indent(textwrap.dedent(lines).strip(), "  ")
    kind = kind if "." in kind else f"dagster_weblake.{kind}"
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "part"
        folder.mkdir()
        (folder / "defs.yaml").write_text(f"type: {kind}\nattributes:\n{body}\n")
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        with sandbox.load_component_and_build_defs(folder) as found:
            yield found


def refused(kind: str, attributes: Mapping[str, object] | str) -> str:
    """Return the innermost error about invalid attributes."""
    try:
        with loaded(kind, attributes):
            pass
    except Exception as error:  # noqa: BLE001
        found: BaseException = error
        while found.__cause__ is not None:
            found = found.__cause__
        return str(found)
    raise AssertionError("the component was loaded")


def spec_of(defs: dg.Definitions, key: str) -> dg.AssetSpec:
    """The spec of one asset."""
    return next(spec for asset in assets_of(defs) for spec in asset.specs if spec.key.to_user_string() == key)


def assets_of(defs: dg.Definitions) -> list[dg.AssetsDefinition]:
    """The assets, without the checks."""
    return [
        each
        for each in defs.assets or []
        if isinstance(each, dg.AssetsDefinition) and not isinstance(each, dg.AssetChecksDefinition)
    ]


def fields_without_words(model: type[BaseModel]) -> list[str]:
    """Attributes whose schema has no description or no examples."""
    schema = model.model_json_schema()["properties"]
    return [name for name, each in schema.items() if not (each.get("description") and each.get("examples"))]
