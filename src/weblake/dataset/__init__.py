"""A dataset root: where its files lie, what its ledger records of each load, and reading and compacting its tables.

Nothing here talks to the service.
"""
