"""A local S3 server, the lake of the documentation's pictures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lake_server(bucket: str) -> Iterator[str]:
    """Yield the address of a local S3 server with a bucket in it; its key and secret are `test-key`."""
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        access = {"aws_access_key_id": "test-key", "aws_secret_access_key": "test-key", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **access).create_bucket(Bucket=bucket)
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
