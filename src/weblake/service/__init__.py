"""The embedded local service: the whole web data API in one process, on SQLite, with no account.

It needs the extra `weblake[local]`. `server.LocalService` starts it in this process, `serve.serve` is `weblake serve`.
The way of a page: routes_* -> intake -> records -> jobs, job_run, crawl -> scraping -> page -> records -> chunks.

Imports: errors, options, webhooks; nothing else of weblake.
"""
