"""The console: read-only web pages at `/` that show jobs, usage, webhooks and sessions.

They load nothing from other hosts, and all scraped text is escaped.
"""
