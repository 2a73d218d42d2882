"""Store the pages of urls.txt in the folder lake, once a day: `python pages.py`."""

import datetime
from pathlib import Path

import weblake

HERE = Path(__file__).parent


def load(urls: Path = HERE / "urls.txt", root: Path = HERE / "lake") -> weblake.Receipt:
    """Store today's pages and return the receipt; what has been stored today is not bought again."""
    return weblake.land_batch(
        urls.read_text().split(),
        to=root,
        key="pages",  # the name of the load: a changed list replaces the pages that were stored earlier today
        partition={"load_date": datetime.date.today().isoformat()},
        terms=weblake.Terms(max_credits=100),  # refuse to start what would cost more
        formats=["markdown", "links"],
    )


if __name__ == "__main__":
    receipt = load()
    print(f"{receipt.stored} of {receipt.submitted} pages stored, {receipt.failed} failed, job {receipt.job_id}")
