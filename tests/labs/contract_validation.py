"""The contract that the package carries, and the validation of responses against it."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import yaml
from jsonschema import Draft202012Validator, FormatChecker


def load() -> dict[str, Any]:
    """Return the contract, an OpenAPI 3.1 document, decoded."""
    text = files("weblake.api").joinpath("spec/service-api.openapi.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return document


def operation(api: dict[str, Any], method: str, path: str) -> tuple[str, dict[str, Any]]:
    """Return the template and the operation of a request; the template with the fewest parameters takes precedence."""
    fitting = [
        template
        for template in api["paths"]
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path) and method.lower() in api["paths"][template]
    ]
    best = min(fitting, key=lambda template: template.count("{"))
    return best, api["paths"][best][method.lower()]


def validate(api: dict[str, Any], method: str, path: str, status: int, body: object) -> str:
    """Validate a response against the contract's schema, and return the name of the operation."""
    template, called = operation(api, method, path)
    response = called["responses"][str(status)]
    if "$ref" in response:
        response = api["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = {"$ref": response["content"]["application/json"]["schema"]["$ref"], "components": api["components"]}
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(body)
    return f"{method} {template}"
