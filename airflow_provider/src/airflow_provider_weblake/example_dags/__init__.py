"""DAGs to begin with: copy one into your DAG folder, or run it as it is with `run_example`."""
