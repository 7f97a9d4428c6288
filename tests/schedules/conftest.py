"""Schedules to time, and a slow simulator to hold the replay against."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost.plugins import load


def _orders() -> Any:
    path = Path(__file__).with_name("orders.py")
    spec = importlib.util.spec_from_file_location("orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ORDERS = _orders()


@pytest.fixture(scope="session")
def zb_h1() -> Any:
    return ORDERS.zb_h1()


@pytest.fixture(scope="session")
def interleaved() -> Any:
    return SimpleNamespace(name="interleaved", order=ORDERS.interleaved)


@pytest.fixture(scope="session")
def zb_v() -> Any:
    return SimpleNamespace(name="zb_v", order=ORDERS.zb_v)


@pytest.fixture(scope="session")
def any_order() -> Callable[[int], Any]:
    return ORDERS.any_order  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def gpipe() -> Any:
    """GPipe as it is shipped."""
    return load().named("schedules")["gpipe"][1]


@pytest.fixture(scope="session")
def one_f_one_b() -> Any:
    """1F1B as it is shipped."""
    return load().named("schedules")["one_f_one_b"][1]


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Any]:
    return ORDERS.simulate  # type: ignore[no-any-return]
