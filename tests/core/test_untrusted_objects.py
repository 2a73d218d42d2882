"""S10: untrusted data is never unpickled or executed. A rule over every line of the source code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalogue import proves

REPOSITORY = Path(__file__).parents[2]
#: Beside the core.
OTHERS = ("airflow_provider/src", "dagster_resources/src", "docs", "example_dags")
#: Modules that make objects, or code, of bytes.
_MODULES = (
    "pickle _pickle cPickle cloudpickle dill joblib marshal shelve jsonpickle copyreg code codeop xmlrpc xml.etree "
    "xml.dom xml.sax lxml ruamel"
)
MODULES = frozenset(_MODULES.split())
_CALLS = (
    "eval exec compile __import__ yaml.load yaml.unsafe_load yaml.full_load yaml.load_all numpy.load np.load "
    "pd.read_pickle pandas.read_pickle pd.eval torch.load pa.ipc.open_stream pa.ipc.open_file pa.ipc.read_message "
    "pa.deserialize pyarrow.ipc.open_stream pyarrow.ipc.open_file ipc.open_stream ipc.open_file feather.read_table "
    "os.system os.popen subprocess.getoutput msgspec.msgpack.decode import_module importlib.import_module"
)
CALLS = frozenset(_CALLS.split())
#: What is done all the same, by file and name, and why no stranger has a say in it.
ALLOWED = {
    ("src/weblake/__init__.py", "import_module"): "lazy names of the public door, from a table in the file",
    ("src/weblake/cli/__init__.py", "import_module"): "the modules of the commands, from a table in the file",
    ("src/weblake/orchestration.py", "import_module"): "the same as the first",
    ("src/weblake/testing/__init__.py", "import_module"): "the same",
    ("src/weblake_service/files/office_properties.py", "xml.etree"): "the types of elements; defusedxml reads",
    ("src/weblake_service/page/content_types.py", "xml.etree"): "the same, and its writer",
    ("src/weblake_service/sessions/code/harness.py", "compile"): "the code that a session's user sent to be run",
    ("src/weblake_service/sessions/code/harness.py", "eval"): "the same, only with --allow-code-execution",
}
SHELL = "shell"


def found(path: Path) -> Iterator[tuple[str, int]]:
    """Return the uses of these modules and calls in a file, with their lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            for name in modules:
                for module in MODULES:
                    if name == module or name.startswith(f"{module}."):
                        yield module, node.lineno
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in CALLS:
                yield called, node.lineno
            if any(each.arg == SHELL and ast.unparse(each.value) != "False" for each in node.keywords):
                yield SHELL, node.lineno
        # One that only refuses makes nothing.
        if (
            isinstance(node, ast.FunctionDef)
            and node.name in ("__reduce__", "__reduce_ex__", "__setstate__")
            and not all(isinstance(each, ast.Raise | ast.Expr) for each in node.body)
        ):
            yield node.name, node.lineno


def product() -> list[Path]:
    """Where the modules lie that this run has imported, so that the rule meets a changed copy too."""
    import weblake

    core = Path(weblake.__file__).parents[1]
    return [core, *(REPOSITORY / each for each in OTHERS)]


@pytest.mark.system
@proves(
    "S10",
    at="src/weblake_service/files/worker.py",
    line="reply = pack(convert(msgspec.json.decode(task, type=ConversionTask), body))",
    becomes="reply = pack(convert(__import__('pickle').loads(task), body))",
)
def test_s10_no_untrusted_data_is_unpickled_or_executed() -> None:
    core, *others = product()
    used = {
        (f"src/{path.relative_to(core)}" if root == core else str(path.relative_to(REPOSITORY)), name): line
        for root in (core, *others)
        for path in sorted(root.rglob("*.py"))
        for name, line in found(path)
    }
    assert {place: line for place, line in used.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) == set(used), "the list names what is no longer there"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import marshal as m", "eval(x)", "yaml.load(x)",
        "subprocess.run(x, shell=True)", "from xml.etree import ElementTree", "pa.ipc.open_stream(x)",
        "class A:\n def __reduce__(self): return 1", "__import__(x)",
    ],
)  # fmt: skip
def test_control_the_rule_detects_unsafe_calls(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.py").write_text(source)
    assert list(found(tmp_path / "a.py"))
