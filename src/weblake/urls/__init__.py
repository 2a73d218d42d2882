"""Lists of URLs: read from files on any storage, and cut into shards for mapped tasks."""
