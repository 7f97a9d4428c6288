"""Why a layout lost: the terms that take longer than in the best one."""

from __future__ import annotations

from parcost_apps.search.report import time_differences


def test_what_differs_by_rounding_is_no_reason() -> None:
    best = {"product": 2.0, "ring": 1.0, "bubble": 0.5}
    other = {"product": 2.0 + 1e-9, "ring": 1.5, "update": 0.25}
    assert time_differences(best, other) == [("ring", 0.5), ("update", 0.25), ("bubble", -0.5)]
    # a millionth of 3.5 s, and just above
    assert time_differences(best, {**best, "ring": 1.0 + 3.4e-6}) == []
    assert len(time_differences(best, {**best, "ring": 1.0 + 3.6e-6})) == 1
