"""The versions of Airflow's execution API, reduced to the one that this Airflow's own tasks and triggers use."""

from airflow.api_fastapi.execution_api.routes import execution_api_router
from airflow.sdk.api.datamodels._generated import API_VERSION
from cadwyn import HeadVersion, Version, VersionBundle
from cadwyn.route_generation import _DELETED_ROUTE_TAG

# Cadwyn refuses routes that exist in none of its versions.
execution_api_router.routes[:] = [
    route for route in execution_api_router.routes if _DELETED_ROUTE_TAG not in getattr(route, "tags", ())
]
bundle = VersionBundle(HeadVersion(), Version(API_VERSION))
