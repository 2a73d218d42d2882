"""Turns a response body into a document: text, main content, markdown, links, metadata. Does no network I/O."""
