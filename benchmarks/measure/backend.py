"""What a backend has to do: run one case, and return how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .cases import Attention, Collective, Copy, Host, Load, Product, Stream


class Missing(Exception):  # noqa: N818
    """A case that cannot be measured here, and why."""


@dataclass(frozen=True)
class Facts:
    """The device and the software that the rows are measured on."""

    device: str
    name: str
    cpu: str
    software: str
    driver: str | None = None


@dataclass(frozen=True)
class Reading:
    """The state of the device at one moment; None if it cannot be read."""

    sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    limits: str | None = None


@dataclass(frozen=True)
class Timing:
    """How long a case took."""

    seconds: float
    clock: str = "device"
    kernel: str | None = None
    kernels: float | None = None
    busy: float | None = None  # seconds in which the device ran kernels of it
    notes: str = ""
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class Sample:
    """The rate of one moment of a long run."""

    second: float
    seconds: float
    reading: Reading


class Backend(Protocol):
    """A library that runs the cases on a device; each method raises `Missing` where it cannot."""

    facts: Facts
    ranks: int

    def product(self, case: Product) -> Timing:
        """Time a matrix product."""
        ...

    def attention(self, case: Attention) -> Timing:
        """Time an attention kernel."""
        ...

    def stream(self, case: Stream) -> Timing:
        """Time an element-wise pass."""
        ...

    def host(self, case: Host) -> Timing:
        """Time the launch of kernels on the host."""
        ...

    def copy(self, case: Copy) -> Timing:
        """Time a copy."""
        ...

    def collectives(self, cases: Sequence[Collective]) -> Iterator[tuple[Collective, Timing]]:
        """Yield the time of collectives over all devices of the host."""
        ...

    def release(self) -> None:
        """Give memory back that no case needs any more."""
        ...

    def load(self, case: Load, seconds: float) -> Iterator[Sample]:
        """Yield rates of a case that runs without a pause; the first is that of a short burst."""
        ...
