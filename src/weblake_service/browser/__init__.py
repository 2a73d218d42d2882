"""Rendering of pages in Chromium. Playwright is imported only when a page needs it."""
