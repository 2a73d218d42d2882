"""The hook, and the client that waiting triggers share."""
