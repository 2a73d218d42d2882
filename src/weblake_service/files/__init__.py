"""Documents that are no web pages: what they are, how they arrive, and the processes in which they are converted."""
