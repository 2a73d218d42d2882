"""Deletes a row of a Delta Lake table's file as Spark and Databricks do it: by a deletion vector in the log."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from deltalake import DeltaTable, TableFeatures

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def delete_first_row(folder: Path) -> None:
    """Mark the first row of the file that was added last as deleted, in a new version of the table."""
    feature = TableFeatures.DeletionVectors
    DeltaTable(folder).alter.add_feature(feature, allow_protocol_versions_increase=True)
    log = sorted((folder / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
    add = [action["add"] for action in actions if "add" in action][-1]
    # The number 0 in a bitmap: the magic number, the number of bitmaps, their key; then the bitmap's own format.
    bitmap = struct.pack("<iqiiiHHiH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
    padded = bitmap + bytes(-len(bitmap) % 4)
    words = [int.from_bytes(padded[at : at + 4], "big") for at in range(0, len(padded), 4)]
    text = "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(bitmap), "cardinality": 1}
    now = add["modificationTime"]
    remove = {"path": add["path"], "deletionTimestamp": now, "dataChange": True, "size": add["size"]}
    written = [
        {"commitInfo": {"timestamp": now, "operation": "DELETE"}},
        {"remove": {**remove, "partitionValues": add["partitionValues"]}},
        {"add": {**add, "deletionVector": vector}},
    ]
    version = DeltaTable(folder).version() + 1
    (folder / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, written)) + "\n")
