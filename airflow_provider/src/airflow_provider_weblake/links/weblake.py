"""The link on a task's page that leads to the task's job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: The XCom key under which an operator stores its job's address, directly after the start.
JOB_URL_KEY = "weblake_job_url"


class WeblakeJobLink(BaseOperatorLink):
    """Leads to the job: the connection's `job_url`, the console of the embedded service, or the status address.

    It works as soon as the operator has pushed `weblake_job_url`, also while the task runs or is deferred: Airflow
    reads a link from the XCom that `xcom_key` names, and `xcom_key` returns that key. Airflow would fill a key of the
    link's own only when a worker has finished the task.
    """

    name = "Scrape job"
    xcom_key = JOB_URL_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the job's address; empty if no job was started."""
        found = XCom.get_value(ti_key=ti_key, key=JOB_URL_KEY)
        return found if isinstance(found, str) else ""
