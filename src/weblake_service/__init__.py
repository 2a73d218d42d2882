"""The embedded local service: the whole web data API in one process, on SQLite, without an account.

It needs the extra `weblake[local]`. `server.LocalService` starts it in this process; `serve.serve` implements `weblake
serve`. A request for a page passes through routes, jobs, web, page, jobs and store; `jobs.job_status` reads it back.
"""
