"""The SQLite database: writer, tables, accounting and search index."""
