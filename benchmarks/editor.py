"""How long an editor waits for `parcost lsp`, through the client of pygls over stdin and stdout.

    python benchmarks/editor.py [ROUNDS]

A spec of 200 lines with two studies is open. Each round types one character into it. Printed are
milliseconds on the clock: until the diagnostics of the new text arrive, until an empty request
comes back, and for other requests, with the ratio of the first two. The project promises 100 ms.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "editor"))

from editor_client import Editor  # noqa: E402  as its folder was just added
from lsprotocol import types as lsp  # noqa: E402

SPEC = ROOT / "specs" / "runs" / "llama3_70b_64_h100.par"
LINES = 200
PROMISED_MS = 100.0
FILLER = """
fabric spare_{0} {{
  level node {{ size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 2 us }}
  level rail {{ size = {1} nodes, bandwidth = 400 Gbps per_direction, latency = 5 us }}
}}
"""


def text() -> str:
    """Return a spec of 200 lines: a shipped run, and fabrics that its studies may use."""
    base = SPEC.read_text(encoding="utf-8").replace(
        "cluster {", "cluster {\n  fabric = worked_example"
    )
    made = base + "".join(FILLER.format(i, i + 2) for i in range(LINES))
    return "".join(made.splitlines(keepends=True)[: LINES - LINES % 5 + 1])


def milliseconds(begin: float) -> float:
    """Return the time since *begin*."""
    return 1e3 * (perf_counter() - begin)


def measure(editor: Editor, uri: str, rounds: int) -> dict[str, list[float]]:
    """Return the times of each kind of answer."""
    spec = text()
    line = spec[: spec.index("micro_batch  = 1")].count("\n")
    column = len("  micro_batch  = 1")
    start, end = lsp.Position(line, column), lsp.Position(line, column + 1)
    times: dict[str, list[float]] = {}

    def note(what: str, begin: float) -> None:
        times.setdefault(what, []).append(milliseconds(begin))

    for number in range(2 * rounds):
        change = (lsp.Range(start, start), " ") if number % 2 == 0 else (lsp.Range(start, end), "")
        begin = perf_counter()
        editor.change(uri, change, wait=False)
        editor.wait_for(lambda: editor.counts[uri, editor.versions[uri]] > 0)
        note("diagnostics of a change", begin)
        editor.wait_for_diagnostics(uri)
        note("rules and studies of a change, with a pause of 200 ms", begin)
        begin = perf_counter()
        editor.request("folding_range", editor.uri("closed.par"))
        note("an empty request", begin)
        for name in ("hover", "completion", "definition"):
            begin = perf_counter()
            editor.request(name, uri, (line, 4))
            note(name, begin)
    return times


def main(rounds: int = 30) -> int:
    """Measure, print, and return 1 if the promise is broken."""
    with TemporaryDirectory() as folder:
        editor = Editor(Path(folder).resolve())
        begin = perf_counter()
        uri = editor.open("spec.par", text())
        print(f"a spec of {text().count(chr(10))} lines, open in {milliseconds(begin):.0f} ms")
        times = measure(editor, uri, rounds)
        editor.stop()
    print(f"{'milliseconds':56} {'median':>8} {'95 %':>8} {'most':>8}")
    for what, found in times.items():
        most = quantiles(found, n=20)[-1]
        print(f"{what:56} {median(found):8.1f} {most:8.1f} {max(found):8.1f}")
    answer = times["diagnostics of a change"]
    print(f"ratio to an empty request {median(answer) / median(times['an empty request']):.1f}")
    print(f"promised {PROMISED_MS:.0f} ms for the diagnostics of a change")
    return int(quantiles(answer, n=20)[-1] > PROMISED_MS)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
