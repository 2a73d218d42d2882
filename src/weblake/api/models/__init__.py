"""Typed views of all responses. Names are those of the contract in snake_case.

lenient.Model describes how fields are treated that do not fit.
"""

from weblake.api.models.branding import *  # noqa: F403
from weblake.api.models.discovery import *  # noqa: F403
from weblake.api.models.documents import *  # noqa: F403
from weblake.api.models.lenient import Model as Model
from weblake.api.models.responses import *  # noqa: F403
from weblake.api.models.team_reports import *  # noqa: F403
