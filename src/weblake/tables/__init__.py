"""What lands: the columns of each table, how a raw document becomes a row of it, and the file that holds the rows."""
