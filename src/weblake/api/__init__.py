"""The contract of the service in Python: operations, options, responses, webhooks, and the parsing of their JSON."""
