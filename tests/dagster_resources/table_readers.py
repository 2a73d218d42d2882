"""Reads a table of a dataset in an environment that has dagster-deltalake and dagster-iceberg.

    table_readers.py BLOCK OTHERS

Materializes the definitions of a block of docs/dagster.md, then reads the same table in the other ways of these
packages. OTHERS is JSON: `{"delta": {"root_uri": …}}` or `{"iceberg": {"name": …, "properties": {…}}}`. Prints one line
of JSON: the rows by way of reading, and the metadata of the table asset.
"""

import json
import runpy
import sys
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa

KEY = dg.AssetKey(["web", "documents"])
TABLE = dg.AssetIn(KEY, input_manager_key="table")


@dg.asset(ins={"documents": TABLE})
def in_pandas(documents: pd.DataFrame) -> int:
    return int(documents["url"].nunique())


@dg.asset(ins={"documents": TABLE})
def in_arrow(documents: pa.Table) -> int:
    return int(documents.num_rows)


def delta_readers(root_uri: str) -> tuple[dict[str, Any], dict[str, Any], dg.AssetsDefinition]:
    """Return the resources with which pandas and Arrow read, and an asset that uses the table's resource."""
    from dagster_deltalake import DeltaLakePyarrowIOManager, DeltaTableResource, S3Config
    from dagster_deltalake_pandas import DeltaLakePandasIOManager

    @dg.asset(deps=[KEY])
    def by_resource(table: DeltaTableResource) -> int:
        return int(table.load().to_pyarrow_table().num_rows)

    settings: dict[str, Any] = {"root_uri": root_uri, "storage_options": S3Config()}
    managers = {"pandas": DeltaLakePandasIOManager(**settings), "arrow": DeltaLakePyarrowIOManager(**settings)}
    table = DeltaTableResource(url=f"{root_uri}/web/documents", storage_options=S3Config())
    return managers, {"table": table}, by_resource


def iceberg_readers(
    name: str, properties: dict[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dg.AssetsDefinition]:
    """As `delta_readers`."""
    from dagster_iceberg.config import IcebergCatalogConfig
    from dagster_iceberg.io_manager.arrow import PyArrowIcebergIOManager
    from dagster_iceberg.io_manager.pandas import PandasIcebergIOManager
    from dagster_iceberg.resource import IcebergTableResource

    @dg.asset(deps=[KEY])
    def by_resource(table: IcebergTableResource) -> int:
        return int(table.load().scan().to_arrow().num_rows)

    config = IcebergCatalogConfig(properties=properties)
    managers = {"pandas": PandasIcebergIOManager(name=name, config=config)}
    managers["arrow"] = PyArrowIcebergIOManager(name=name, config=config)
    table = IcebergTableResource(name=name, config=config, table="documents", namespace="web")
    return managers, {"table": table}, by_resource


def main() -> None:
    block, others = runpy.run_path(sys.argv[1]), json.loads(sys.argv[2])
    managers, resources, by_resource = (
        delta_readers(**others["delta"]) if "delta" in others else iceberg_readers(**others["iceberg"])
    )
    with dg.DagsterInstance.ephemeral() as instance:
        result = block["defs"].resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
        (made,) = [
            event.step_materialization_data.materialization
            for event in result.get_asset_materialization_events()
            if event.asset_key == KEY
        ]
        found: dict[str, object] = {
            "by_status": result.output_for_node("pages_by_status"),
            "metadata": {name: str(value.value) for name, value in made.metadata.items()},
        }
        for asset, using in (
            (in_pandas, {"table": managers["pandas"]}),
            (in_arrow, {"table": managers["arrow"]}),
            (by_resource, resources),
        ):
            node = asset.node_def.name
            read = dg.materialize([asset, dg.AssetSpec(KEY)], instance=instance, resources=using)
            found[node] = read.output_for_node(node)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
