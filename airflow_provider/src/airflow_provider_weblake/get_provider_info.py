"""The provider's metadata, which every Airflow process reads at start-up; this module imports nothing.

`conn-fields` and `ui-field-behaviour` define the connection form, so that Airflow does not import the hook for it.
"""

_PACKAGE = "airflow_provider_weblake"
_NAME = "weblake"


def get_provider_info() -> dict[str, object]:
    """Return the provider's metadata, as Airflow's provider schema defines it."""
    return {
        "package-name": "airflow-provider-weblake",
        "name": _NAME,
        "description": "Lands web data as Parquet, exactly once, paid once.",
        "integrations": [{"integration-name": _NAME, "tags": ["service"]}],
        "operators": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.operators.weblake"]}],
        "sensors": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.sensors.weblake"]}],
        "hooks": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.hooks.weblake"]}],
        "triggers": [{"integration-name": _NAME, "python-modules": [f"{_PACKAGE}.triggers.weblake"]}],
        "connection-types": [_connection_type()],
        "extra-links": [f"{_PACKAGE}.links.weblake.WeblakeJobLink"],
        "asset-uris": [
            {
                "schemes": ["weblake"],
                "handler": f"{_PACKAGE}.assets.weblake.sanitize_uri",
                "to_openlineage_converter": f"{_PACKAGE}.assets.weblake.convert_asset_to_openlineage",
            }
        ],
    }


def _connection_type() -> dict[str, object]:
    return {
        "connection-type": "weblake",
        "hook-class-name": f"{_PACKAGE}.hooks.weblake.WeblakeHook",
        "hook-name": _NAME,
        "ui-field-behaviour": {
            "hidden-fields": ["login", "port", "schema", "extra"],
            "relabeling": {"host": "Base URL", "password": "API key"},
            "placeholders": {
                "host": "https://api.example.com",
                "password": "The key that the service's dashboard shows",
                "call_timeout_s": "60",
                "job_url": "https://app.example.com/jobs/{kind}/{job_id}",
                "proxy": "http://user:password@proxy.example.com:3128",
                "ca_bundle": "/etc/ssl/company-ca.pem",
                "client_certificate": "/etc/ssl/client.pem",
                "client_key": "/etc/ssl/client.key",
            },
        },
        "conn-fields": {
            "call_timeout_s": {
                "label": "Call timeout (seconds)",
                "description": "How long one call is tried again while the service is busy or fails. Empty: 60.",
                "schema": {"type": ["integer", "null"], "minimum": 1, "maximum": 86400},
            },
            "job_url": {
                "label": "Job page",
                "description": "Where people look at a job, with {kind} and {job_id} in it. "
                "Empty: the job's status address at the service.",
                "schema": {"type": ["string", "null"]},
            },
            "proxy": {
                "label": "Proxy",
                "description": "URL of the proxy, http:// or https://. Empty: HTTPS_PROXY and NO_PROXY of the worker.",
                "schema": {"type": ["string", "null"], "format": "password"},
            },
            "ca_bundle": {
                "label": "CA bundle",
                "description": "PEM file on the worker with the certificate authorities to trust. "
                "Empty: the worker's own.",
                "schema": {"type": ["string", "null"]},
            },
            "client_certificate": {
                "label": "Client certificate",
                "description": "PEM file on the worker, for services that want mutual TLS.",
                "schema": {"type": ["string", "null"]},
            },
            "client_key": {
                "label": "Client key",
                "description": "PEM file on the worker with the client certificate's key. "
                "Empty: it is in the certificate's file.",
                "schema": {"type": ["string", "null"]},
            },
            "insecure": {
                "label": "Allow plain http",
                "description": "Sends the API key in the clear to an http:// base URL beyond this machine.",
                "schema": {"type": "boolean", "default": False},
            },
        },
    }
