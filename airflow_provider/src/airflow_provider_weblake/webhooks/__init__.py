"""The webhook receiver: a FastAPI app that the plugin adds to Airflow's API server (docs/webhooks-to-assets.md)."""
