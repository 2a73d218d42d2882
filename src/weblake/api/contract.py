"""The contract itself, as it is packaged: an OpenAPI 3.1 file.

The client does not read it: options/ and models/ say the same in Python, and tests/api/test_contract.py holds the
two together. The embedded service shows it at /openapi.yaml.
"""

from __future__ import annotations

from importlib.resources import files

from weblake.errors import FeatureMissing

#: The file's place below the package.
NAME = "spec/service-api.openapi.yaml"


def text() -> str:
    """The contract file's text, YAML."""
    return files("weblake.api").joinpath(NAME).read_text(encoding="utf-8")


def load() -> dict[str, object]:
    """The contract as a decoded document; each call decodes it anew.

    Raises:
        FeatureMissing: PyYAML is not installed; weblake itself never needs it.
    """
    try:
        import yaml
    except ImportError:
        raise FeatureMissing(
            "The contract file is YAML, and no YAML reader is installed.", hint="Install one: pip install pyyaml"
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, object] = yaml.load(text(), Loader=loader)  # noqa: S506  (both loaders are the safe one)
    return document
