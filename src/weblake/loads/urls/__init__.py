"""Lists of URLs: reading them from files on any storage, and splitting them into shards for mapped tasks."""
