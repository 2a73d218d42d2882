"""The Airflow plugin that adds the webhook receiver to the API server; the entry point `airflow.plugins` names it.

Every Airflow process imports this module. The receiver, which needs FastAPI, is imported by the API server only.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

#: The path below which the API server serves the receiver.
URL_PREFIX = "/weblake"


class _WebhookApps:
    """The plugin's `fastapi_apps`, made when the API server reads them."""

    def __get__(self, plugin: object, owner: type | None = None) -> list[dict[str, object]]:
        from airflow_provider_weblake.webhooks.app import receiver_app

        return [{"app": receiver_app(), "url_prefix": URL_PREFIX, "name": "weblake webhooks"}]


class WeblakeWebhookPlugin(AirflowPlugin):
    """Serves POST /weblake/webhooks/{conn_id} for the connections that have a `webhook_secret`."""

    name = "weblake_webhooks"
    fastapi_apps = _WebhookApps()
