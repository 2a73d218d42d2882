"""Runs a user's code against a session's browser, in processes that end with the call."""
