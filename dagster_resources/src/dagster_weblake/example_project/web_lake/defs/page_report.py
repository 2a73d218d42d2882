"""A pandas asset downstream of landed pages, which needs no file, no path and no service."""

import dagster as dg
import pandas as pd


@dg.asset(
    ins={
        "watched_pages": dg.AssetIn(
            input_manager_key="lake", metadata={"columns": ["url", "title", "markdown", "links"]}
        )
    },
    group_name="site",
    kinds={"pandas"},
    automation_condition=dg.AutomationCondition.eager(),
)
def page_report(context: dg.AssetExecutionContext, watched_pages: pd.DataFrame) -> pd.DataFrame:
    """Return words and links of each watched page, as the newest batch read them."""
    report = pd.DataFrame(
        {
            "url": watched_pages["url"],
            "title": watched_pages["title"],
            "words": watched_pages["markdown"].fillna("").str.split().str.len(),
            "links": watched_pages["links"].map(lambda links: 0 if links is None else len(links)),
        }
    )
    context.add_output_metadata({"dagster/row_count": len(report), "words": int(report["words"].sum())})
    return report.sort_values("words", ascending=False, ignore_index=True)
