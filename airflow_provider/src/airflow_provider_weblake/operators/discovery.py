"""Operators for map (the URLs of a site) and interact (code or prompts in the browser of a scraped page)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast
from urllib.parse import quote

from airflow_provider_weblake import lineage
from airflow_provider_weblake.operators.base import WeblakeOperator, options_of, refuse_none
from airflow_provider_weblake.retry_policy import policy_applied
from airflow_provider_weblake.storage import small_file
from weblake import errors
from weblake.options import InteractOptions, MapOptions

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_weblake.storage import SmallFile
    from weblake import Client

T = TypeVar("T", dict[str, object], list[str])

#: Bytes of JSON that a task may put into XCom: the metadata database stores them, and every heartbeat sends them.
XCOM_BYTES = 48_000
#: Characters of the output of a page's code that an error message includes.
MAX_ERROR_CHARS = 300

#: Characters that a page's URL must not bring into a list: it has one URL a line and `#` for comments.
_BREAKS_LINES = re.compile(r"[\s\x00-\x1f\x7f\x85\u2028\u2029]")
#: Fields of a response that give access to the browser without an API key.
_BROWSER_ADDRESSES = frozenset({"liveViewUrl", "interactiveLiveViewUrl", "cdpUrl"})


class WeblakeMapOperator(WeblakeOperator):
    """Lists the URLs of a site, into a file that the batch operator and `url_shards` read, or into XCom.

    One call, billed as the service bills a map. A retry or a Clear maps the site again, is billed again, and replaces
    the file in one step: readers see the old list or the new one. A task that is marked failed leaves no work at the
    service.

    Returns `{"count", "file"}` with `to`, else the list of URLs.

    :param url: The site (templated).
    :param options: Options of map by their snake_case names, as in :class:`weblake.options.MapOptions`: `search`,
        `sitemap`, `include_subdomains`, `limit` and so on; `timeout` is in milliseconds (templated).
    :param to: The text file to write: a local path, or a storage URL such as `s3://aws_default@lake/{{ ds }}.txt`, with
        one URL a line. Without it the list goes into XCom, which takes 48 kB, some hundreds of URLs (templated).
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (*WeblakeOperator.template_fields, "url", "options", "to")
    template_fields_renderers: ClassVar[dict[str, str]] = {"options": "json"}

    def __init__(
        self,
        *,
        url: str,
        options: MapOptions | None = None,
        to: str | ObjectStoragePath | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.url = url
        self.options = options
        self.to = to

    @policy_applied
    def execute(self, context: Context) -> dict[str, object] | list[str]:
        """Map the site; return the URLs, or their count and the file."""
        with self.service() as client:
            file = _file_of(self.to)  # checked before anything is paid
            if file is not None and file.name.lower().endswith((".csv", ".parquet")):  # it would be read as such
                raise errors.InvalidOption(f"The list {file.name} is text.", hint="Name the file with .txt.")
            refuse_none("`url`", self.url)
            found = client.map_site(self.url, **options_of(MapOptions, self.options))
            if found.warning:
                self.log.warning("The service says of the map of %s: %s", self.url, found.warning[:MAX_ERROR_CHARS])
            urls = [url for link in found.links if (url := _one_line(link.url))]
            self.log.info("%s has %d URLs.", self.url, len(urls))
            if file is None:
                return _fits_xcom(urls, f"The map of {self.url} ({len(urls)} URLs)")
            file.write("".join(f"{url}\n" for url in urls).encode(errors="replace"))
            done: dict[str, object] = {"count": len(urls), "file": file.name}
            lineage.outlets_changed(context, done)
            return done


class WeblakeInteractOperator(WeblakeOperator):
    """Runs code, or a prompt, in the browser of a page that was scraped, and stops that browser.

    A browser is billed by the minute until it is stopped. So it is stopped when the task ends, with or without an
    error, and when the task is killed. It is left as it is if the service refused the call and the task has a retry.
    If the worker is killed outright, only the service's own time limit stops it.
    Neither call can be looked up afterwards: without a clear answer, the code may have run and may have been billed,
    and the task fails with `OutcomeUnknown`, which ends its retries. A stopped browser cannot be resumed (410): to try
    again, clear the task that scraped the page together with this one.

    Returns the response's `output`, `result`, `stdout`, `stderr`, `exit_code`, and `stopped`, `session_seconds` and
    `credits_billed` from the stop of the browser; with `to` the texts are in the file. The addresses of the live
    browser are left out, because they give access to it without a key.

    :param scrape_id: The scrape's id: `metadata.scrapeId`, column `scrape_id` of the documents (templated).
    :param code: The code to run; either this or `prompt` (templated).
    :param prompt: What an agent is to do in the page (templated).
    :param language: `node` (the service's default), `python` or `bash`; for code only (templated).
    :param timeout: Seconds for the code or prompt, 1 to 300; the service's default is 30 (templated).
    :param origin: A label for the service's statistics (templated).
    :param stop: Stops the browser with the task. With False the next task with this `scrape_id` finds it as it was
        left, and the last one has to stop it. Default True.
    :param fail_on_error: Fails the task if the code failed (an exit code, an error, a timeout). Default True.
    :param to: A file for the whole response as JSON; without it the response goes into XCom, which takes 48 kB
        (templated).
    :param weblake_conn_id: The connection. Default `weblake_default` (templated).
    """

    template_fields: Sequence[str] = (
        *WeblakeOperator.template_fields,
        *("scrape_id", "code", "prompt", "language", "timeout", "origin", "to"),
    )

    def __init__(
        self,
        *,
        scrape_id: str,
        code: str | None = None,
        prompt: str | None = None,
        language: str | None = None,
        timeout: float | str | None = None,
        origin: str | None = None,
        stop: bool = True,
        fail_on_error: bool = True,
        to: str | ObjectStoragePath | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.scrape_id = scrape_id
        self.code = code
        self.prompt = prompt
        self.language = language
        self.timeout = timeout
        self.origin = origin
        self.stop = stop
        self.fail_on_error = fail_on_error
        self.to = to
        self._closer: Client | None = None

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Run the code or prompt, stop the browser, and return the response."""
        with self.service() as client:
            file = _file_of(self.to)
            if self.stop:
                # Made now because on_kill interrupts arbitrary code and must not look up a connection then.
                self._closer = self.hook.get_conn()
            closed: dict[str, object] = {"stopped": False}
            stop = self.stop
            try:
                reply = self._interact(client)
            except errors.RetryLater:
                # Refused before it reached the browser, which a retry needs as an earlier task left it.
                stop = stop and context["ti"].try_number > context["ti"].max_tries
                raise
            finally:
                if stop:
                    closed = self._end_browser(client)
                self._closer = None
            trouble = client.redact(_failure_of(reply))
            done = {"scrape_id": self.scrape_id} | _xcom_part(reply, file) | closed
            if file is not None:
                lineage.outlets_changed(context, done)
            if trouble and self.fail_on_error:
                raise errors.GiveUp(
                    f"The {'prompt' if self.code is None else 'code'} failed in the browser of scrape "
                    f"{self.scrape_id}: {trouble}",
                    hint=f"The complete response is in {file.name}."
                    if file
                    else "Set `to` to keep the complete response.",
                )
            return _fits_xcom(done, f"The reply of scrape {self.scrape_id}")

    def on_kill(self) -> None:
        """Stop the browser, also if only this worker is stopped: no other process would stop it."""
        closer, self._closer = self._closer, None
        if closer is not None:
            with closer:
                self._end_browser(closer)

    def _interact(self, client: Client) -> Mapping[str, object]:
        given = {
            name: value
            for name in ("code", "prompt", "language", "timeout", "origin")
            if (value := getattr(self, name)) is not None
        }
        try:
            raw = client.interact(self.scrape_id, **options_of(InteractOptions, given)).raw
        except (errors.OutcomeUnknown, errors.ServiceUnavailable, errors.MalformedReply) as error:
            if error.status is not None and (error.status == 503 or 300 <= error.status < 400):
                raise  # refused before it reached a browser
            raise _outcome_unknown(error.message, error) from error
        if not isinstance(raw, dict):
            raise _outcome_unknown("The reply is no JSON object")
        return raw

    def _end_browser(self, client: Client) -> dict[str, object]:
        """Stop the browser and return its cost; errors are logged, so that they do not hide an error of the task."""
        try:
            closed = client.stop_interact(self.scrape_id)
            trouble = closed.error or "" if closed.success is False else None
        except (errors.JobGone, errors.FeatureMissing, errors.InvalidOption):
            return {"stopped": True}  # there is no browser
        except errors.WeblakeError as error:
            trouble = f"{error}"
        if trouble is not None:
            self.log.warning(
                "The browser of scrape %s could not be stopped and is paid until the service ends it: %s",
                self.scrape_id,
                trouble[:MAX_ERROR_CHARS],
            )
            return {"stopped": False}
        ms = closed.session_duration_ms
        summary = {"session_seconds": None if ms is None else ms / 1000, "credits_billed": closed.credits_billed}
        self.log.info("Stopped the browser of scrape %s: %s", self.scrape_id, json.dumps(summary))
        return {"stopped": True} | {name: value for name, value in summary.items() if value is not None}


def _file_of(to: str | ObjectStoragePath | None) -> SmallFile | None:
    if not to:
        return None
    refuse_none("`to`", to)
    return small_file(to)


def _outcome_unknown(why: str, error: errors.WeblakeError | None = None) -> errors.OutcomeUnknown:
    return errors.OutcomeUnknown(
        f"interact: no definite response was received ({why.rstrip('.')}), so it may have run, and been paid.",
        hint="Look at the page; to try again, clear the task that scraped it together with this one.",
        status=error.status if error else None,
        code=error.code if error else None,
    )


def _one_line(url: str | None) -> str:
    """Return a URL as one line of a list, line breaks percent-encoded; empty for one that reads as a comment."""
    text = _BREAKS_LINES.sub(lambda found: quote(found[0]), (url or "").strip())
    return "" if text.startswith("#") else text


def _xcom_part(reply: Mapping[str, object], file: SmallFile | None) -> dict[str, object]:
    """Return the part of a response for XCom; write all of it but the browser's addresses to the file."""
    reply = {name: value for name, value in reply.items() if name not in _BROWSER_ADDRESSES and value is not None}
    names = {"exitCode": "exit_code"}
    if file is None:
        return {names.get(name, name): value for name, value in reply.items()}
    data = json.dumps(reply, ensure_ascii=False).encode(errors="replace")
    file.write(data)
    small = {name: reply[name] for name in ("success", "exitCode", "killed") if name in reply}
    return {names.get(name, name): value for name, value in small.items()} | {"file": file.name, "bytes": len(data)}


def _failure_of(reply: Mapping[str, object]) -> str:
    """Return the error in the browser, if any; `success` can be true all the same."""
    code = reply.get("exitCode")
    parts = []
    if reply.get("killed") is True:
        parts.append("its time was up")
    if isinstance(code, int) and code != 0:
        parts.append(f"exit code {code}")
    if reply.get("success") is False or parts or reply.get("error"):
        said = reply.get("error") or reply.get("stderr") or "the service does not say why"
        parts.append(" ".join(str(said).split())[:MAX_ERROR_CHARS])
    return ", ".join(parts)


def _fits_xcom(value: T, what: str) -> T:
    value = cast("T", _without_nul(value))
    size = len(json.dumps(value).encode())
    if size > XCOM_BYTES:
        raise errors.FixRequest(
            f"{what} is {size:,} bytes of JSON, and a task may put {XCOM_BYTES:,} into XCom.",
            hint="Set `to` to a file, which may be of any size and which other tasks can read.",
        )
    return value


def _without_nul(value: object) -> object:
    """Return a value without NUL characters: PostgreSQL stores no JSON that holds one, and the task would fail."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {_without_nul(name): _without_nul(each) for name, each in value.items()}
    return [_without_nul(each) for each in value] if isinstance(value, list) else value
