"""Files, ledger, slot index, reading and compaction of a dataset root. Nothing here sends a request to the service."""
