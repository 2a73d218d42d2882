"""Tests of the decision records: their form, their index, and the source files that they name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from catalogue import REPOSITORY

FOLDER = REPOSITORY / "docs/decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
#: The rows of the index: number, title, file name, and status with its date.
ROWS = re.findall(
    r"^\| (\d{3}) \| \[(.+)\]\(([\w-]+\.md)\) \| ([^|]+) \| [^|]*\|$",
    (FOLDER / "README.md").read_text(),
    re.MULTILINE,
)
FORM = re.compile(
    r"# (?P<number>\d{3}): (?P<title>.+)\n\n"
    r"Status: (?P<status>(?:accepted|(?:partly )?replaced by \d{3}), \d{4}-\d{2}-\d{2})\.(?: .+)?\n\n"
    r"## Context\n"
)
each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:3])


@cache
def source_files() -> frozenset[str]:
    """Return each source file of the repository as `/path`, so that the end of a path can be compared."""
    folders = ("src", "airflow_provider", "dagster_resources", "tests", "benchmarks", "docs", "example_dags")
    files = (path for folder in folders for path in (REPOSITORY / folder).rglob("*.*"))
    return frozenset(f"/{path.relative_to(REPOSITORY).as_posix()}" for path in files)


def read_header(record: Path) -> re.Match[str]:
    header = FORM.match(record.read_text())
    assert header, f"{record.name} does not begin with a title, a status with its date, and Context"
    return header


@each_record
def test_the_index_has_the_title_and_status_of_a_record(record: Path) -> None:
    header = read_header(record)
    row = (header["number"], header["title"], record.name, header["status"])
    assert row in ROWS, f"docs/decisions/README.md has no row {row}"


@each_record
def test_a_record_in_force_names_source_files_that_exist(record: Path) -> None:
    if "replaced by" in read_header(record)["status"]:
        return  # it may describe what was removed
    named = set(re.findall(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.(?:py|mjs|js|tsv)\b", record.read_text()))
    gone = [name for name in named if not any(path.endswith(f"/{name}") for path in source_files())]
    assert not gone, f"{record.name} names {gone}, which the repository does not have"


def test_a_file_that_cites_a_record_names_one_that_exists() -> None:
    texts = [REPOSITORY / path[1:] for path in source_files() if path.endswith((".py", ".md"))]
    for file in (*texts, *REPOSITORY.glob("*.md")):
        for name in re.findall(r"decisions/(\d{3}-[\w-]+\.md)", file.read_text(errors="replace")):
            assert (FOLDER / name).is_file(), f"{file.relative_to(REPOSITORY)} cites docs/decisions/{name}"


def test_numbers_are_unique_and_in_order() -> None:
    numbers = [int(number) for number, *_ in ROWS]
    assert numbers == sorted(set(numbers)), "docs/decisions/README.md lists each number once, newest last"
    files = [record.name[:3] for record in RECORDS]
    assert len(files) == len(set(files)), "two records have the same number"
    assert {number for number, *_ in ROWS} == set(files), "each record has a row, and each row a record"
