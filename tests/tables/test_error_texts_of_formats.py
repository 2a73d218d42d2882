"""What a message has of an error of deltalake or pyiceberg: the cause, in one line, and no secret."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable
from requests import Request
from requests.exceptions import InvalidHeader

from weblake.tables.formats import first_line

SECRET = "hushhush"


def test_the_causes_of_an_error_of_deltalake_are_told() -> None:
    """Its first line is `Kernel error -> Generic S3 error`."""
    options = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": SECRET}
    options |= {"AWS_ALLOW_HTTP": "true", "max_retries": "0", "AWS_ENDPOINT_URL": f"http://user:{SECRET}@127.0.0.1:1"}
    with pytest.raises(OSError) as caught:
        DeltaTable("s3://lake/documents", storage_options=options)
    told = first_line(caught.value)
    assert "GET http://***@127.0.0.1:1/lake/documents/_delta_log/_last_checkpoint" in told
    assert "Connection refused" in told
    assert "\n" not in told
    assert "\x1b" not in told
    assert SECRET not in told


@pytest.mark.parametrize("scheme", ["Bearer", "Basic"])
def test_a_header_that_is_refused_is_not_told(scheme: str) -> None:
    """A token from a file with a line feed at its end."""
    request = Request("GET", "http://catalog.test", headers={"Authorization": f"{scheme} {SECRET}\n"})
    with pytest.raises(InvalidHeader) as caught:
        request.prepare()
    assert SECRET in str(caught.value)
    assert SECRET not in first_line(caught.value)


def test_other_errors_have_their_first_line() -> None:
    assert first_line(ValueError("one.\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError"
    assert len(first_line(ValueError("x" * 5000))) == 400
