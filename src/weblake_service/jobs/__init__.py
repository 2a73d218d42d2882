"""Jobs: database records, scheduling, page scraping, status and webhooks."""
