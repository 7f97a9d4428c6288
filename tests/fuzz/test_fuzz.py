"""A little of the fuzzer on every run; `bytes_fuzzer.py` says how to run more of it."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow


def _fuzzer() -> ModuleType:
    spec = spec_from_file_location("bytes_fuzzer", Path(__file__).with_name("bytes_fuzzer.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fuzzer = _fuzzer()


@pytest.mark.parametrize("hundred", range(20))
def test_broken_files_end_in_diagnostics(hundred: int) -> None:
    for number in range(100 * hundred, 100 * (hundred + 1)):
        text = fuzzer.text_of(1, number)
        assert fuzzer.failure(_read_and_check, text) is None, repr(text)


@settings(deadline=None)
@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "replace")))
def test_arbitrary_text_ends_in_diagnostics(text: str) -> None:
    _read_and_check(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*fuzzer.NASTY, *fuzzer.SNIPPETS]), max_size=8).map(" ".join))
def test_nasty_pieces_end_in_diagnostics(text: str) -> None:
    _read_and_check(text)


def test_a_failure_is_reported_and_reduced() -> None:
    def fails_on_at(text: str) -> None:
        if "@" in text:
            raise ValueError("no at")

    failure_text = fuzzer.failure(fails_on_at, "some text @ and more")
    assert failure_text.startswith("ValueError in ")
    assert fuzzer.smallest(fails_on_at, "some text @ and more", failure_text) == "@"


def _read_and_check(text: str) -> None:
    fuzzer.read(text)
    fuzzer.check(text)
