"""What the service answers: a file for each group of endpoints, and how their bodies become checked options."""
