"""Airflow assets that stand for the tables of weblake datasets."""
