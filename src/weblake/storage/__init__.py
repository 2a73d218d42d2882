"""The storage of a dataset root: on local disk, in memory or on an object store."""

from __future__ import annotations

from weblake.storage.opening import BACKENDS, KINDS, open_storage
from weblake.storage.protocol import FsspecPath, RootPath, Storage

__all__ = ["BACKENDS", "KINDS", "FsspecPath", "RootPath", "Storage", "open_storage"]
