"""Requests about a job of the service: retries, polls until the job ends, and paging through its results."""
