"""Schedules to time, and a slow simulator to hold the replay against."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcost.plugins.discovery import load
from parcost_apps.testing import simulate as simulate_orders


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
def shipped() -> dict[str, Any]:
    """Every schedule as it is shipped, by name."""
    return {name: schedule for name, (_, schedule) in load().offers("schedules").items()}


@pytest.fixture(scope="session")
def gpipe(shipped: dict[str, Any]) -> Any:
    return shipped["gpipe"]


@pytest.fixture(scope="session")
def one_f_one_b(shipped: dict[str, Any]) -> Any:
    return shipped["one_f_one_b"]


@pytest.fixture(scope="session")
def interleaved(shipped: dict[str, Any]) -> Any:
    return shipped["interleaved"]


@pytest.fixture(scope="session")
def zb_h1(shipped: dict[str, Any]) -> Any:
    return shipped["zb_h1"]


@pytest.fixture(scope="session")
def zb_v(shipped: dict[str, Any]) -> Any:
    return shipped["zb_v"]


@pytest.fixture(scope="session")
def any_order() -> Callable[[int], Any]:
    return ORDERS.any_order  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def any_pairs() -> Callable[[int], Any]:
    return ORDERS.any_pairs  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Any]:
    return simulate_orders
