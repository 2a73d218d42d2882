"""Arrow schemas of the tables, conversion of raw documents to rows, and the Parquet files that hold the rows."""
