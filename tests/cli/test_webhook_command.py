"""The command that verifies the signature of a webhook delivery."""

from __future__ import annotations

import json
from pathlib import Path

from command_in_process import run_command

from weblake import webhooks


def test_only_a_delivery_that_is_signed_with_the_secret_is_valid(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b'{"type": "crawl.completed", "id": "1"}')
    secret = {"WEBLAKE_WEBHOOK_SECRET": "test-secret"}
    signature = webhooks.sign("test-secret", body.read_bytes())
    args = ["webhook", "verify", str(body), "--signature"]
    assert run_command([*args, signature], secret)[:2] == (0, "The signature is valid.\n")
    assert json.loads(run_command([*args, signature, "--json"], secret)[1]) == {"valid": True}
    code, out, err = run_command([*args, webhooks.sign("another-secret", body.read_bytes())], secret)
    assert (code, out, "does not match" in err) == (1, "", True)
    assert run_command([*args, signature], {"WEBLAKE_WEBHOOK_SECRET": ""})[0] == 2
    assert run_command(["webhook", "verify", str(tmp_path / "none"), "--signature", signature], secret)[0] == 1
