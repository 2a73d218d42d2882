"""Language models: settings, the client of an OpenAI-compatible endpoint, prompts, and what a model adds to a page."""
