"""The button on a task that leads to its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink
from airflow.sdk.execution_time.xcom import XCom

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: The XCom under which an operator leaves its job's address, right after the start.
JOB_URL_KEY = "weblake_job_url"


class WeblakeJobLink(BaseOperatorLink):
    """Leads to the job: the connection's `job_url`, the console of the embedded service, or the status address.

    It works as soon as the operator has pushed `weblake_job_url`, also while the task runs or is deferred: Airflow
    reads a link from the XCom that `xcom_key` names, and this is the very one. A key of the link's own would be filled
    only when a worker is done with the task.
    """

    @property
    def name(self) -> str:
        """The text of the button."""
        return "Scrape job"

    @property
    def xcom_key(self) -> str:
        """Where the API server looks."""
        return JOB_URL_KEY

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Returns the job's address; empty where no job was started."""
        found = XCom.get_value(ti_key=ti_key, key=JOB_URL_KEY)
        return found if isinstance(found, str) else ""
