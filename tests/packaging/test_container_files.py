"""Tests that the files in deploy/ name existing extras, options of `weblake serve` and environment variables.

`.ci/containers` builds and runs the images.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import weblake
from weblake.cli.local import serve

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = (REPOSITORY / "deploy/Dockerfile").read_text()
COMPOSE = yaml.safe_load((REPOSITORY / "deploy/compose.yaml").read_text())
STATEFUL_SET, SERVICE = yaml.safe_load_all((REPOSITORY / "deploy/kubernetes.yaml").read_text())
(POD,) = STATEFUL_SET["spec"]["template"]["spec"]["containers"]


def test_the_extras_exist() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    extras = set(re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE))
    (default,) = re.findall(r"ARG EXTRAS=(\S+)", DOCKERFILE)
    named = {*default.split(","), *re.findall(r"/source\[(\w+)\]", DOCKERFILE)}
    assert named == {"local", "llm", "browser"}
    assert named <= extras


def test_the_arguments_are_those_of_the_command() -> None:
    (arguments,) = re.findall(r"^CMD \[(.*)\]$", DOCKERFILE, re.MULTILINE)
    command, *options = shlex.split(arguments.replace(",", " "))
    app = typer.Typer()
    app.command()(serve)
    context: Any = typer.main.get_command(app).make_context(command, options)
    assert command == "serve"
    assert context.params["host"] == "0.0.0.0"
    assert context.params["port"] == POD["ports"][0]["containerPort"] == 8900
    assert f"EXPOSE {context.params['port']}" in DOCKERFILE
    assert str(context.params["data"]) == POD["volumeMounts"][0]["mountPath"] == "/data"


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_the_service_of_compose_is_as_restricted_as_the_pod(service: str) -> None:
    composed = COMPOSE["services"][service]
    security = POD["securityContext"]
    assert composed["read_only"] is security["readOnlyRootFilesystem"] is True
    assert composed["cap_drop"] == security["capabilities"]["drop"] == ["ALL"]
    assert composed["security_opt"] == ["no-new-privileges:true"]
    assert security["allowPrivilegeEscalation"] is False
    assert all(port.startswith("127.0.0.1:") and port.endswith(":8900") for port in composed["ports"])
    assert set(composed["environment"]) == {each["name"] for each in POD["env"]}


def test_the_user_of_the_image_is_that_of_the_pod() -> None:
    user = STATEFUL_SET["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in DOCKERFILE
    assert f"--uid {user['runAsUser']}" in DOCKERFILE


def test_the_environment_variables_are_read() -> None:
    sources = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    names = set(re.findall(r"\bWEBLAKE_[A-Z_]+", DOCKERFILE)) | {each["name"] for each in POD["env"]}
    assert all(name in sources for name in names)


def test_the_service_selects_the_pod() -> None:
    assert SERVICE["spec"]["selector"].items() <= STATEFUL_SET["spec"]["template"]["metadata"]["labels"].items()
    assert SERVICE["spec"]["ports"][0]["targetPort"] == POD["ports"][0]["name"]


def test_a_client_accepts_the_address_that_the_page_names(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs/containers.md").read_text()
    (clients,) = re.findall(r"^.*Clients use .*$", page, re.MULTILINE)
    settings = dict(re.findall(r"`(WEBLAKE_\w+)=([^`]+)`", clients))
    assert settings["WEBLAKE_BASE_URL"].split(".")[0] == f"http://{SERVICE['metadata']['name']}"
    for name, value in {**settings, "WEBLAKE_API_KEY": "a-key"}.items():
        monkeypatch.setenv(name, value)
    with weblake.Client():
        pass
