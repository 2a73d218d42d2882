"""Uploaded and linked documents: file types, uploads, and the processes that convert them."""
