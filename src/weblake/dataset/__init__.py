"""Files, ledger, slot index and reading of a dataset root. Nothing here sends a request to the service."""
