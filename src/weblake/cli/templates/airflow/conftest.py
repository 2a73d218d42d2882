"""An Airflow home for the tests: a folder beside this file, whose database is made by the first test run."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

os.environ["AIRFLOW_HOME"] = str(HERE / "airflow_home")
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(HERE / "dags")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


def pytest_sessionstart():
    """Make or upgrade the database before a test imports Airflow."""
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, stdout=subprocess.DEVNULL)
