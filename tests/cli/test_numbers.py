"""Numbers for reading, and numbers that read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost.language.numbers import literal, quantity
from parcost.language.units import BYTES, FLOPS, ONE, RATE, SECONDS, Dimension, unit
from parcost_formats.rendering.cells import cells
from parcost_formats.rendering.columns import ColumnScale

from ..rows import try_each


@try_each(
    "value, of, text",
    [
        (0.0, "s", "0 s"),
        (4.434451, "s", "4.434 s"),
        (0.9999999, "s", "1 s"),
        (3.4e-6, "s", "3.4 us"),
        (2.5e-10, "s", "0.25 ns"),
        (7200.0, "s", "7,200 s"),
        (85899345920.0, "B", "80 GiB"),
        (25e6, "B", "25 MB"),
        (2.0, "B", "2 B"),
        (50e9, "B/s", "50 GB/s"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (4.1955e14, "TFLOPS", "419.6 TFLOPS"),
        (-3.25 * 2**30, "GiB", "-3.25 GiB"),
        (0.09765625 * 2**30, "GiB", "100 MiB"),
        (179.2e6, "kB", "170.9 MiB"),
        (16777216.0, "B", "16 MiB"),
        (0.0, "GiB", "0 GiB"),
        (12_345e9, "GB/s", "12,345 GB/s"),
        (0.04e-3, "ms", "40 us"),
        (0.41955, "%", "41.95 %"),
        (262144.0, "", "262,144"),
        (0.00001234, "", "1.234e-05"),
        (float("inf"), "s", "never"),
        (None, "s", "-"),
        (True, "", "on"),
        ("ring", "", "ring"),
    ],
)
def test_a_quantity_reads_with_four_digits_in_the_unit_that_fits(
    value: object, of: str, text: str
) -> None:
    assert quantity(value, of) == text


def test_an_array_reads_as_its_range() -> None:
    assert quantity(np.array([0.001, 0.25, 0.02]), "s") == "1 ms to 250 ms"
    assert quantity(np.array([2.0, 2.0]), "B") == "2 B"


@pytest.mark.slow
@given(
    number=st.floats(min_value=1e-9, max_value=1e18, allow_nan=False),
    dimension=st.sampled_from([ONE, BYTES, RATE, SECONDS, FLOPS]),
)
def test_a_literal_reads_back_to_the_very_same_number(number: float, dimension: Dimension) -> None:
    digits, _, name = literal(number, dimension).partition(" ")
    size, measured = unit(name) if name else (1.0, ONE)
    assert float(digits) * size == number
    assert measured == dimension


@given(
    digits=st.integers(1, 9999),
    spelled=st.sampled_from(["GB", "GiB", "MB", "us", "ms", "GB/s", "TFLOPS"]),
)
def test_a_number_that_was_written_with_few_digits_is_shown_with_few(
    digits: int, spelled: str
) -> None:
    size, dimension = unit(spelled)
    assert len(literal(digits * size, dimension)) <= len(f"{digits}.0 {spelled}") + 1


def test_a_column_has_one_unit_so_that_it_can_be_added() -> None:
    column = ColumnScale(27.25e9, "B")
    assert (column.unit, column.text(27.25e9), column.text(2.0**20)) == ("GiB", "25.3785", "0.0010")


@pytest.mark.parametrize("sizes", [[80 * 2**30, 25e6, 0.0], [1e9, 25e6, 2**30], [7e9, 2**20]])
def test_bytes_of_one_column_have_units_of_one_kind(sizes: list[float]) -> None:
    texts = cells([(size, "B") for size in sizes])
    units = {text.split()[1] for text in texts} - {"B"}
    assert len({"i" in unit for unit in units}) == 1


def test_other_cells_of_a_column_of_bytes_stay_as_they_are() -> None:
    assert cells([(2.0**30, "B"), "-", (0.5, "s"), (25e6, "B")]) == [
        "1 GiB",
        "-",
        "500 ms",
        "23.84 MiB",
    ]
