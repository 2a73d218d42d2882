"""The embedded local service: the whole web data API in one process, on SQLite, with no account.

It needs the extra `weblake[local]`. `server.LocalService` starts it in this process, `serve.serve` is `weblake serve`.
The way of a page: routes -> jobs -> web -> page -> jobs -> store, and back through `jobs.chunks`.
"""
