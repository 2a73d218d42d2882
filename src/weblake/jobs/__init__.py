"""Following a job of the service: requests and their retries, polls until its end, and its results page by page."""
