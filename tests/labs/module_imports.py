"""Import of every module of an installed package, in a separate interpreter."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from importlib import import_module
from pkgutil import walk_packages
package = import_module(sys.argv[1])
names = [name for _, name, _ in walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith(".__main__") and name not in sys.argv[2:]:
        import_module(name)
print(len(names))
"""


def import_all(package: str, *programs: str) -> int:
    """Import every module of a package but these, which are programs, and return the number of modules."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM, package, *programs], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout.splitlines()[-1])
