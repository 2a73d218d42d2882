"""The public module `weblake.options`: the options of all requests. The code is in api/options/."""

from weblake.api.options import check_query_names as check_query_names
from weblake.api.options import from_texts as from_texts
from weblake.api.options import from_wire as from_wire
from weblake.api.options import to_wire as to_wire
from weblake.api.options import url_problem as url_problem
from weblake.api.options.requests import *  # noqa: F403
