"""Rows as data frames, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a ``pandas.DataFrame`` of *rows*.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        message = "a data frame needs pandas: pip install 'parcost[notebook]'"
        raise ImportError(message) from error
    return pd.DataFrame.from_records(list(rows))
