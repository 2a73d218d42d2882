"""Browser sessions: a Chromium of its own for each, that its user drives from outside.

cdp             what a client of the browser's protocol can do
"""
