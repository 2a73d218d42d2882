"""Access to the packaged contract, an OpenAPI 3.1 file.

The client does not read it: options/ and models/ define the same in Python, and tests/api/test_contract.py compares
the two. The embedded service serves it at /openapi.yaml.
"""

from __future__ import annotations

from importlib.resources import files

from weblake.errors import FeatureMissing

#: The path of the file, relative to the package.
NAME = "spec/service-api.openapi.yaml"


def text() -> str:
    """Return the text of the contract file, YAML."""
    return files("weblake.api").joinpath(NAME).read_text(encoding="utf-8")


def load() -> dict[str, object]:
    """Return the contract as a decoded document; each call decodes it again.

    Raises:
        FeatureMissing: PyYAML is not installed; no other function of the client needs it.
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
