"""HTTP requests to the service over httpx: transports, total deadlines, bounded response bodies."""
