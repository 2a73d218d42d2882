"""Plain http beyond loopback, which exposes the key on the network, is used only if explicitly allowed."""

from __future__ import annotations

import pytest
from both_clients import REMOTE_HOST, Read, with_both_clients
from catalogue import proves
from command_in_process import run_command
from landing_commands import Lake
from scripted_service import ScriptedService

from weblake.errors import InvalidOption

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


@proves(
    "S3",
    at="src/weblake/cli/app.py",
    line="return weblake.Client(self.base_url, insecure=self.insecure or None)",
    becomes="return weblake.Client(self.base_url, insecure=True)",
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
