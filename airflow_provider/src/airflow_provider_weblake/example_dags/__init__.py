"""Example DAGs: copy one into a DAG folder, or run it unchanged with `run_example`."""
