"""Browser sessions: one Chromium process each, driven by CDP clients, code, a language model, or a live view."""
