"""A load from its request to its commit: start a job once, download it, account for every URL, publish, recover.

In order: load_request, starts, download, staging, accounting, publishing, recovery, retirement; `load` is the whole.
"""
