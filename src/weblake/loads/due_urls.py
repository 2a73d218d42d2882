"""Choose the URLs of a list that are due: those without a page in the dataset that is fresh (`refresh_after`).

The choice is made once for each load, before its intent, which names the list (loads/intents.py). A load whose intent
is on record goes on with that list, whatever has landed meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from weblake.api.page_keys import page_key
from weblake.dataset.root import Dataset
from weblake.dataset.slots import group_of
from weblake.events import LoadMessage
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import NEVER, LoadRequest


def with_due_urls(client: FlowRunner, dataset: Dataset, request: LoadRequest) -> LoadRequest:
    """Return a placed request with the URLs that are due, or as it is if it has no `refresh_after` or was begun before.

    The client's observer gets a LoadMessage if no URL is due, and if an earlier command has chosen the list.

    Raises:
        StorageRefused: The dataset cannot be read.
    """
    window, slot = request.refresh_after, request.slot
    if window is None or request.submitted is None:
        return request
    intent = dataset.ledger.intent(request.load_id)
    if intent is not None:
        if slot is None:
            text = f"Load {request.load_id} was begun before and goes on with the {intent.submitted} URLs due then."
            client.retry.observe(LoadMessage(load_id=request.load_id, text=f"{text} Run it again for what is due now."))
        return request
    import pyarrow as pa
    import pyarrow.compute as pc

    from weblake.arrow import arrays
    from weblake.dataset import freshness

    keys = arrays.column(pa.string(), [page_key(url) for url in request.submitted])
    since = None if window == NEVER else datetime.now(timezone.utc) - window
    group = None if slot is None else group_of(slot.name, slot.run, has_partition=slot.has_partition)
    replaced = () if group is None else dataset.slots.members(group)
    stale = freshness.without_fresh(dataset, keys.unique(), since, without=replaced)
    is_due = pc.is_in(keys, value_set=stale).to_pylist()
    due = [url for url, due in zip(request.submitted, is_due, strict=True) if due]
    request = replace(request, fresh=len(keys) - len(due))
    if due:
        return request.sending(due) if request.fresh else request
    text = f"All {len(keys)} URLs are fresh: nothing is due, and nothing is started."
    client.retry.observe(LoadMessage(load_id=request.load_id, text=text))
    return replace(request, submitted=(), start=None)
