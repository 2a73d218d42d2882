"""Arrow schemas of the tables, conversion of raw documents to rows, and the Parquet files that hold the rows."""

from weblake.errors import FeatureMissing

try:
    import pyarrow as pyarrow
except ImportError as error:
    # NumPy is optional for pyarrow, so that pip installs a pyarrow next to a NumPy with which it cannot be imported.
    raise FeatureMissing(
        f"pyarrow cannot be imported: {error}.",
        hint="Install versions of pyarrow and NumPy that go together: pip install 'numpy>=2', "
        "or pip install 'pyarrow<26' if another package needs NumPy 1.",
    ) from None
