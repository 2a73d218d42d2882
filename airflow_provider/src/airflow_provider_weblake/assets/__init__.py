"""weblake's datasets as Airflow assets."""
