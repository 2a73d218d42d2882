"""Starts `agent-browser`: `python -I start_command.py PATH... -- ARGUMENTS`, with the service's module paths."""

import sys

# Remove this file's folder from the import path: its modules would shadow others with the same names.
paths = sys.argv[1 : sys.argv.index("--")]
sys.path[:] = [*(path for path in sys.path[1:] if path not in paths), *paths]
sys.argv = ["agent-browser", *sys.argv[sys.argv.index("--") + 1 :]]

from weblake_service.sessions.code.browser_command import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
