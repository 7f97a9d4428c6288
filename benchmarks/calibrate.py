"""Fit the constants of the open runs again: values, bounds, errors left out.

    python benchmarks/calibrate.py [--update]

Runs `parcost calibrate` over the runs that ship, with models left out in eight folds and with
each source left out, and prints the tables of docs/calibration.md; with --update they are
written there. It takes some minutes. The catalogue is changed by hand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "calibration.md"
START = "<!-- made by `python benchmarks/calibrate.py --update` -->\n"
END = "<!-- end -->\n"
COMMAND = ["calibrate", "--leave", "models", "--leave", "sources", "--format", "json"]
MOST = 1.5  # points that models left out may be worse than in sample


def fit_catalogue() -> dict[str, Any]:
    """Return the output of the command for the open runs."""
    code = "import sys; from parcost_apps.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMAND], check=True, stdout=subprocess.PIPE, text=True
    )
    (fit,) = json.loads(done.stdout)["fits"]
    return dict(fit)


def value(name: str, number: float) -> str:
    """Return a value as the catalogue writes it."""
    if name.endswith("kernels"):
        return f"{number:.0f}"
    if name.endswith("issue"):
        return f"{1e6 * number:.1f} us"
    return f"{100 * number:.1f} %"


def page(fit: dict[str, Any]) -> str:
    """Return the tables in Markdown."""
    lines = [
        "| constant | as shipped | fitted | 90 % interval | bounds | configurations |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for one in fit["constants"]:
        name = one["name"]
        low, high = (value(name, x) for x in one["interval"])
        least, most = (value(name, x) for x in one["bounds"])
        ends = f" ({one['ends_on']} bound)" if one["ends_on"] else ""
        lines.append(
            f"| `{name}` | {value(name, one['before'])} | {value(name, one['value'])}{ends} "
            f"| {low} to {high} | {least} to {most} | {one['configurations']:,} |"
        )
    lines += [f"| `{one['name']}` | kept | {one['reason']} | | | |" for one in fit["rejected"]]
    lines += [
        "",
        "| step time of the open rows | n | MAPE | median | signed mean | p90 |",
        "| :-- | --: | --: | --: | --: | --: |",
        row("as shipped", fit["uncalibrated"]),
        row("fitted, in sample", fit["calibrated"]),
    ]
    for left in fit["left_out"]:
        lines.append(row(f"{left['leave']} left out, {left['folds']} folds", left))
    models = next(left for left in fit["left_out"] if left["leave"] == "models")
    worse = models["mape"] - fit["calibrated"]["mape"]
    lines += [
        "",
        f"Models left out are {worse:+.1f} points off the error in sample; {MOST} are allowed.",
    ]
    for left in fit["left_out"]:
        if left["substituted"]:
            names = ", ".join(f"`{name}`" for name in left["substituted"])
            lines.append(
                f"With {left['leave']} left out, folds without rows for {names} took the mean of "
                "its kind or the middle of its bounds."
            )
    return "\n".join(lines) + "\n"


def row(title: str, scores: dict[str, Any]) -> str:
    """Return a line of the second table."""
    signs = f"{scores['mape']:.1f} % | {scores['median']:.1f} % | {scores['mean']:+.1f} %"
    return f"| {title} | {scores['n']:,} | {signs} | {scores['p90']:.1f} % |"


def main() -> None:
    """Fit, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    found = page(fit_catalogue())
    print(found)
    if options.update:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{START}\n{found}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
