"""How tasks and triggers reach the service: the hook, and the client that waiting jobs share."""
