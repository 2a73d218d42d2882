"""Upload of a file to Azure in blocks whose ids no other upload has.

Azure keeps the blocks of a blob that are not committed yet for the blob, not for the writer, and a block replaces the
one of the same id. azure-storage-blob before 12.31 numbers the blocks: of two concurrent writers of one name, the one
that commits first would publish blocks of the other. Blocks that are never committed are deleted by Azure after a week.

A floor of 12.31 instead would exclude each supported release of Airflow, whose constraints have older versions (12.26.0
for 3.0, 12.30.2 for 3.3).
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any


def upload_blocks(fs: Any, local_file: Path, path: str, *, mode: str, block_bytes: int, parallel: int) -> None:
    """Upload a local file with the clients of an adlfs file system; with mode `create` only if the blob is absent.

    At most `parallel` blocks of `block_bytes` are in memory.

    Raises:
        azure.core.exceptions.AzureError: The upload failed, or with mode `create` the blob exists.
    """
    from fsspec.asyn import sync

    sync(fs.loop, _upload, fs, local_file, path, mode == "create", block_bytes, parallel)


async def _upload(fs: Any, local_file: Path, path: str, create: bool, block_bytes: int, parallel: int) -> None:
    from azure.core import MatchConditions
    from azure.storage.blob import BlobBlock

    condition = {"match_condition": MatchConditions.IfMissing} if create else {}
    container, blob, _ = fs.split_path(path)
    ids: list[str] = []
    async with fs.service_client.get_blob_client(container, blob) as client:
        with local_file.open("rb") as file:
            while True:
                blocks = [block for _ in range(parallel) if (block := file.read(block_bytes))]
                if not blocks:
                    break
                new = [secrets.token_hex(16) for _ in blocks]
                await asyncio.gather(*map(client.stage_block, new, blocks))
                ids += new
        # The metadata are those that adlfs writes.
        await client.commit_block_list(
            [BlobBlock(each) for each in ids], metadata={"is_directory": "false"}, **condition
        )
    fs.invalidate_cache()
