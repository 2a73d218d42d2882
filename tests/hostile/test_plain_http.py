"""Plain http beyond loopback, which exposes the key on the network, is used only if explicitly allowed."""

from __future__ import annotations

import pytest
from both_clients import REMOTE_HOST, Read, with_both_clients
from catalogue import proves
from command_in_process import run_command
from landing_commands import KEY, Lake
from scripted_service import ScriptedService

from weblake import Client
from weblake.errors import InvalidOption, ServiceUnreachable

#: Hosts that are not loopback, although some resemble it.
BEYOND = [
    REMOTE_HOST,
    "127.0.0.1.example.com",
    "localhost.example.com",
    "localhost.",
    "0.0.0.0",
    "10.0.0.1",
    "127.1",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[fe80::1]",
]


@proves(
    "S3",
    at="src/weblake/credentials.py",
    line='if parts.scheme == "http" and not insecure and not is_loopback(parts.hostname):',
    becomes="if False:",
    case="service.example-blocking_read",
)
@proves(
    "S3",
    at="src/weblake/credentials.py",
    line='if host == "localhost" or host.endswith(".localhost"):',
    becomes='if host.startswith(("localhost", "127.")):',
    case="127.0.0.1.example.com-awaited_read",
)
@with_both_clients
@pytest.mark.parametrize("host", BEYOND)
def test_s3_plain_http_beyond_loopback_is_refused(
    service: ScriptedService, read: Read, host: str, remote_host_on_loopback: None
) -> None:
    with pytest.raises(InvalidOption, match=r"in the clear.*insecure=True"):
        read(f"http://{host}:{service.port}")
    assert service.seen == []


@with_both_clients
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "a.localhost", "127.9.9.9", "[::1]"])
def test_s3_loopback_needs_no_permission(read: Read, host: str) -> None:
    with pytest.raises(ServiceUnreachable):
        read(f"http://{host}:9")


@proves(
    "S3",
    at="src/weblake/cli/app.py",
    line="return Client(self.base_url, insecure=self.insecure or None)",
    becomes="return Client(self.base_url, insecure=True)",
    case="option",
)
@pytest.mark.parametrize("how", ["option", "environment"])
def test_s3_a_command_requires_insecure_for_plain_http_beyond_loopback(
    service: ScriptedService, lake: Lake, how: str, remote_host_on_loopback: None
) -> None:
    url = f"http://{REMOTE_HOST}:{service.port}"
    command, env = ["usage", "credits", "--json"], dict(lake.env)
    if how == "option":
        command += ["--base-url", url]
    else:
        env["WEBLAKE_BASE_URL"] = url
    code, out, err = run_command(command, env)
    assert code == 2, out
    assert "in the clear" in err
    assert "--insecure" in err
    assert service.seen == []
    allowed = ([*command, "--insecure"], env) if how == "option" else (command, env | {"WEBLAKE_INSECURE": "1"})
    run_command(*allowed)
    assert service.seen, "an explicitly allowed request is sent"


@pytest.mark.parametrize("said", ["0", "no", "false", "", "off", "insecure"])
def test_s3_only_a_true_value_of_the_environment_variable_allows_it(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBLAKE_INSECURE", said)
    with pytest.raises(InvalidOption, match="in the clear"):
        Client(f"http://{REMOTE_HOST}", KEY)
