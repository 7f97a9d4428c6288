"""Communication of a step: each collective and send/recv, its count, and its hidden share."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Edge, Once, Outcome, Real, Section, Study, Work

_HIDDEN, _CRITICAL = 0.95, 0.05  # shares of its time, from which it is called so


def section(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield one row for each ledger term on a level of the fabric."""
    levels = {link.name for link in study.group("job").links}
    rows = []
    for line in outcome.ledger:
        term = line.term
        if line.limit not in levels or not isinstance(term, (Work, Edge, Once)):
            continue
        rows.append(
            (
                line.name,
                line.limit,
                (term.bytes_, "MB"),
                line.times,
                (line.exposed + line.hidden, "s"),
                (line.exposed, "s"),
                criticality(line.exposed, line.hidden),
            )
        )
    if rows:
        yield Section(
            title="Communication of a step",
            columns=("transfer", "link", "message", "calls", "busy", "exposed", "status"),
            rows=rows,
            notes=[
                "message: size of the whole buffer of one call",
                "calls: per device and step; for send/recv, messages sent",
            ],
        )


def criticality(exposed: Real, hidden: Real) -> str:
    """Return whether a transfer is on the critical path.

    >>> criticality(1.0, 0.0), criticality(0.5, 0.5), criticality(0.01, 0.99), criticality(0.0, 1.0)
    ('critical', 'partly hidden', 'nearly hidden', 'hidden')
    """
    if not exposed:
        return "hidden"
    share = float(hidden / (exposed + hidden))
    if share >= _HIDDEN:
        return "nearly hidden"
    return "critical" if share <= _CRITICAL else "partly hidden"
