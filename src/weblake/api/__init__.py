"""What the contract of the service says: its operations and options, its responses and webhooks, and their JSON."""
