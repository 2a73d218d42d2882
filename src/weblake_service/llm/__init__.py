"""What a language model does for the service, and how one is reached.

settings       which settings there are, and which of them is missing
interface      what the service asks of any language model
endpoint       the interface, over HTTP, to an OpenAI-compatible endpoint
schemas        JSON Schemas of strangers: bounded, and checked against
prompts        how a task and a stranger's text are put
query          one question: as text, or as JSON with one repair
model          the model of one service, or what it lacks to have one
page_wants     what the options of a scrape want of a model, and what that costs
page_parts     what a model makes of a page
changed_fields the data of two versions of a page, side by side
crawl_params   a prompt as the options of a crawl
"""
