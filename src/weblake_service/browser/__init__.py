"""Everything that needs Chromium. Playwright is imported only when a page needs it."""
