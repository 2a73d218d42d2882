"""The web outside: which addresses may be reached, fetching, robots.txt, sitemaps, and the order of a crawl.

`interface` is all that the rest of the service sees of it.
"""
