"""Turns a response body into a document: text, main content, markdown, links, metadata. Opens no sockets."""
