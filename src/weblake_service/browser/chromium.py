"""Finds the Chromium executable, builds its flags and environment, and reports a missing one."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from weblake_service.responses import ErrorResponse

#: Names the program, where it is not to be looked for.
SETTING = "WEBLAKE_CHROMIUM"
#: `on` or `off`; by default on, but for root, under whom Chromium's sandbox does not start.
SANDBOX = "WEBLAKE_CHROMIUM_SANDBOX"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: What Chromium gets of the environment: no keys.
_KEPT_NAMES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE")


def find_chromium() -> str | None:
    """Return the path of the program: what WEBLAKE_CHROMIUM names, else the first of the usual names on PATH; or None."""
    named = os.environ.get(SETTING)
    if named:
        return shutil.which(named)
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def what_is_missing() -> str:
    """What has to be installed before pages can be loaded in a browser, as part of a sentence; empty for nothing."""
    if find_spec("playwright") is None:
        return "a browser (weblake[browser]: pip install 'weblake[browser]')"
    if find_chromium() is not None:
        return ""
    named = os.environ.get(SETTING)
    how = f"{SETTING} names {named}, which is no program" if named else "apt-get install chromium"
    return f"Chromium for weblake[browser] ({how}; {SETTING} may name any Chromium or Chrome)"


def require_browser(what: str) -> None:
    """Make sure that there is a browser for something.

    Raises:
        ErrorResponse: 503 FEATURE_NOT_CONFIGURED with what is missing.
    """
    missing = what_is_missing()
    if missing:
        raise ErrorResponse(
            503, f"{what} needs {missing}, which this service does not have.", code="FEATURE_NOT_CONFIGURED"
        )


def uses_sandbox() -> bool:
    """Return whether Chromium's own sandbox is used."""
    said = os.environ.get(SANDBOX, "").lower()
    return said != "off" and (said == "on" or not hasattr(os, "geteuid") or os.geteuid() != 0)


def arguments() -> list[str]:
    """Flags for any Chromium of the service, besides a proxy, which is each context's own.

    No name is resolved by Chromium itself and no packet leaves it but to loopback, where the proxy listens: what does
    not go through the proxy goes nowhere.
    """
    return [
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--force-webrtc-ip-handling-policy",
        "--disable-quic",
        "--dns-prefetch-disable",
        "--no-pings",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-sync",
        "--metrics-recording-only",
        "--mute-audio",
    ]


def environment(folder: Path) -> dict[str, str | float | bool]:
    """What Chromium sees of the environment, with its home in a folder."""
    kept = {name: os.environ[name] for name in _KEPT_NAMES if name in os.environ}
    return {**kept, "HOME": str(folder)}
