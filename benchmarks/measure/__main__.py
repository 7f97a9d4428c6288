"""The command line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from .backend import Backend, Missing
from .cases import TABLES
from .tables import measure


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in TABLES:
            raise argparse.ArgumentTypeError(f"no table {name!r}; there are {', '.join(TABLES)}")
    return [name for name in TABLES if name in names]


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no time between 0 and 3600 seconds")
    return found


def backend_of(name: str, *, cpu: bool, device: str | None) -> Backend:
    """Return a backend by its name."""
    if name == "numpy":
        from .numpy_backend import NumpyBackend

        return NumpyBackend(device=device)
    try:
        from .torch_backend import TorchBackend
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise Missing(
            "PyTorch is not installed: pip install 'parcost[measure]', or --backend numpy"
        ) from None
    return TorchBackend(cpu=cpu, device=device)


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, measure, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measure",
        description="Measure the kernels of an accelerator, as tables that parcost reads.",
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of the tables")
    parser.add_argument(
        "--only",
        type=_names,
        default=list(TABLES),
        metavar="TABLE,...",
        help=f"some of {', '.join(TABLES)}",
    )
    parser.add_argument("--seconds", type=_seconds, default=30.0, help="of each load (30)")
    parser.add_argument("--backend", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--cpu", action="store_true", help="try PyTorch on the processor")
    parser.add_argument(
        "--device", help="the name in the catalogue; by the driver's name if left out"
    )
    parser.add_argument("--tiny", action="store_true", help="a few small cases, to try the kit")
    given = parser.parse_args(arguments)
    start = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {text}", flush=True)

    try:
        given.out.mkdir(parents=True, exist_ok=True)
        backend = backend_of(given.backend, cpu=given.cpu, device=given.device)
        facts = backend.facts
        report(f"{facts.name} as {facts.device}; {facts.software}; {facts.cpu}")
        written, left = measure(
            backend, given.out, given.only, seconds=given.seconds, tiny=given.tiny, say=report
        )
    except (Missing, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report(f"{written} measured, {left} left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
