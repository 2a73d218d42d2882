"""Access to the web: address checks, fetching, robots.txt, sitemaps, and the order of a crawl.

The rest of the service uses it only through `http_web`.
"""
