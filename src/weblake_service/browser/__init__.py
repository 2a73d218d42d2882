"""The rooms that need Chromium; nothing here imports Playwright before a page needs it."""
