"""Finds the Chromium executable, builds its flags and environment, and reports a missing one."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

from weblake_service.page_failure import not_configured

#: Environment variable with the path of the executable; it overrides the search.
SETTING = "WEBLAKE_CHROMIUM"
#: `on` or `off`; on by default, except for root, because Chromium's sandbox does not start as root.
SANDBOX = "WEBLAKE_CHROMIUM_SANDBOX"
_EXECUTABLE_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Environment variables that are passed to Chromium; no secrets.
_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE")


def find_chromium() -> str | None:
    """Return the path of the executable, or None.

    WEBLAKE_CHROMIUM takes precedence over the usual names on PATH.
    """
    named = os.environ.get(SETTING)
    if named:
        return shutil.which(named)
    return next((found for name in _EXECUTABLE_NAMES if (found := shutil.which(name))), None)


def what_is_missing() -> str:
    """Return what must be installed before pages can be loaded in a browser, as a clause; empty for nothing."""
    if find_spec("playwright") is None:
        return "a browser (weblake[browser]: pip install 'weblake[browser]')"
    if find_chromium() is not None:
        return ""
    named = os.environ.get(SETTING)
    how = f"{SETTING} names {named}, which is not a program" if named else "apt-get install chromium"
    return f"Chromium for weblake[browser] ({how}; {SETTING} may name any Chromium or Chrome)"


def require_browser(what: str) -> None:
    """Check that a browser is available for `what`.

    Raises:
        PageFailure: 503 FEATURE_NOT_CONFIGURED with what is missing.
    """
    if missing := what_is_missing():
        raise not_configured(what, missing)


def uses_sandbox() -> bool:
    """Return whether Chromium's own sandbox is used."""
    said = os.environ.get(SANDBOX, "").lower()
    return said != "off" and (said == "on" or os.geteuid() != 0)


def arguments() -> list[str]:
    """Return the flags for every Chromium of the service, except the proxy, which is set for each context.

    Chromium resolves no name itself and sends packets only to loopback, where the proxy listens: traffic that bypasses
    the proxy is blocked.
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
    """Return the environment of Chromium, with its home in a folder."""
    kept = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    return {**kept, "HOME": str(folder)}
