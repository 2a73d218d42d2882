"""Jobs: their rows and runs, the scraping of one page, the chunks that are read back, the webhooks that tell of it."""
