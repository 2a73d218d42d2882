"""The one SQLite database: its writer, its tables, and the accounts kept in it."""
