"""Access to the web: address checks, fetching, robots.txt, sitemaps, and the order of a crawl.

`interface` is all that the rest of the service sees of it.
"""
