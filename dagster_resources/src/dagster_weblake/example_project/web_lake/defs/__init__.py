"""Every module and every defs.yaml in here is loaded; nothing has to be registered."""
