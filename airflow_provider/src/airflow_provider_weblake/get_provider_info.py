"""What Airflow reads at start-up. A plain dict; imports nothing."""


def get_provider_info() -> dict[str, object]:
    """The provider's description, as Airflow's provider schema has it."""
    return {
        "package-name": "airflow-provider-weblake",
        "name": "weblake",
        "description": "Lands web data as Parquet, exactly once, paid once.",
    }
