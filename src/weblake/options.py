"""The public module `weblake.options`: the options of all requests. The code is in api/options/."""

from weblake.api.options import *  # noqa: F403
