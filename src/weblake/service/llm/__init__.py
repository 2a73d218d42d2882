"""What a language model does for the service, and how one is reached.

settings     which settings there are, and which of them is missing
port         what the service asks of any language model
endpoint     the port, over HTTP, to an OpenAI-compatible endpoint
schemas      JSON Schemas of strangers: bounded, and checked against
prompts      how a task and a stranger's text are put
asking       one question: as text, or as JSON with one repair
page_parts   what the options of a scrape want of a model, and what it makes of a page
crawl_params a prompt as the options of a crawl
"""
