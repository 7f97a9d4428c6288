"""Choice of a parallelism strategy: one device, one node, many nodes.

The strategies are in the order of the usual decision tree. Each is applied to this model, machine
and batch, and evaluated like any study. The text names the simplest and the fastest strategy that
fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from parcost import Outcome, Section, SpecError, Study, record
from parcost.numeric import all_of
from parcost_plugins.physics import memory_limits
from parcost_plugins.vocabulary import Cluster, Plan, Training

_NO_SPLIT: Mapping[str, Any] = {
    "layout.tp": 1,
    "layout.cp": 1,
    "layout.ep": 1,
    "layout.etp": 1,
    "layout.pp": 1,
    "layout.zero": 0,
    "layout.sequence_parallel": "off",
    "schedule.chunks": 1,
    "schedule.kind": "one_f_one_b",
}


@record(kw_only=True, eq=False)
class _Strategy:
    title: str
    layout: str
    values: Mapping[str, Any]


@record(kw_only=True, eq=False)
class _StrategyCost:
    strategy: _Strategy
    outcome: Outcome | None
    memory_limit: float
    recomputed: bool = False
    why: str = ""

    @property
    def fits(self) -> bool:
        return self.outcome is not None and float(self.outcome.memory_bytes) <= self.memory_limit


def section(study: Study) -> Iterator[Section]:
    """Yield the strategies, whether each fits in memory, and its step time."""
    answers = [_answer(study, strategy) for strategy in _strategies(study)]
    fitting = [(a, float(a.outcome.step_seconds)) for a in answers if a.outcome and a.fits]
    rows = [_row(a) for a in answers]
    notes = []
    if fitting:
        simplest, _ = fitting[0]
        fastest, _ = min(fitting, key=itemgetter(1))
        notes.append(f"the simplest that fits: {simplest.strategy.title}, {_layout(simplest)}")
        if fastest is not simplest:
            notes.append(f"the fastest that fits: {fastest.strategy.title}, {_layout(fastest)}")
    else:
        notes.append("none fits: use more devices, or devices with more memory")
    yield Section(
        title="Choice of a strategy",
        columns=("strategy", "layout", "memory", "fits", "step"),
        rows=rows,
        notes=notes,
    )


def _layout(answer: _StrategyCost) -> str:
    return answer.strategy.layout + (", full recomputation" if answer.recomputed else "")


def _row(answer: _StrategyCost) -> tuple[Any, ...]:
    if answer.outcome is None:
        return (answer.strategy.title, answer.strategy.layout, "", f"no: {answer.why}", "")
    return (
        answer.strategy.title,
        _layout(answer),
        (answer.outcome.memory_bytes, "GiB"),
        "yes" if answer.fits else "no",
        (answer.outcome.step_seconds, "s"),
    )


def _strategies(study: Study) -> Iterator[_Strategy]:
    cluster, plan = study[Cluster], study[Plan]
    devices = int(cluster.devices)
    first = cluster.fabric.levels[0].size
    node = int(min(first if first is not None else devices, devices))
    widest = int(plan.widest_tp) if plan.widest_tp is not None else node
    model = study[Training].model
    if devices == 1:
        yield _Strategy(title="one device", layout="nothing is split", values=_NO_SPLIT)
        return
    for zero, says in enumerate(("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")):
        yield _Strategy(
            title=says,
            layout=f"dp = {devices}, zero = {zero}",
            values={**_NO_SPLIT, "layout.zero": zero},
        )
    experts = int(getattr(model, "experts", 0) or 0)
    expert: dict[str, Any] = {}
    if experts:
        ep = next((e for e in range(min(node, experts), 0, -1) if experts % e == 0), 1)
        expert = {"layout.ep": ep}
        yield _Strategy(
            title="experts within a node",
            layout=f"ep = {ep}, dp = {devices}, zero = 1",
            values={**_NO_SPLIT, **expert, "layout.zero": 1},
        )
    for tp in _powers(2, widest):
        yield _Strategy(
            title="tensor parallel",
            layout=f"tp = {tp} with sequence parallelism, zero = 1",
            values={
                **_NO_SPLIT,
                "layout.tp": tp,
                "layout.zero": 1,
                "layout.sequence_parallel": "on",
            },
        )
    for pp in _powers(2, devices // widest):
        yield _Strategy(
            title="tensor and pipeline",
            layout=f"tp = {widest} with sequence parallelism, pp = {pp}, zero = 1",
            values={
                **_NO_SPLIT,
                **expert,
                "layout.tp": widest,
                "layout.pp": pp,
                "layout.zero": 1,
                "layout.sequence_parallel": "on" if widest > 1 else "off",
            },
        )


def _powers(first: int, last: int) -> Iterator[int]:
    while first <= last:
        yield first
        first *= 2


def _answer(study: Study, strategy: _Strategy) -> _StrategyCost:
    """Return the evaluated strategy, with recomputation only if it does not fit without."""
    plain = _evaluate(study, strategy, {"training.recompute": "none"})
    if plain.outcome is None or plain.fits or not study[Plan].recompute:
        return plain
    again = _evaluate(study, strategy, {"training.recompute": "full"}, recomputed=True)
    return plain if again.outcome is None else again


def _evaluate(
    study: Study, strategy: _Strategy, more: Mapping[str, Any], *, recomputed: bool = False
) -> _StrategyCost:
    memory_limit = float(memory_limits(study).most)
    try:
        changed = study.replace({**strategy.values, **more})
        failed = [
            check
            for _, check in changed.contributions("checks")
            if check.severity == "error" and not all_of(check.holds)
        ]
        if failed:
            why = failed[0].message.format(
                **{k: _whole_number(v) for k, v in failed[0].inputs.items()}
            )
            return _StrategyCost(
                strategy=strategy, outcome=None, memory_limit=memory_limit, why=why
            )
        outcome = changed.evaluate()
    except SpecError as error:
        return _StrategyCost(
            strategy=strategy,
            outcome=None,
            memory_limit=memory_limit,
            why=error.first_message,
        )
    return _StrategyCost(
        strategy=strategy, outcome=outcome, memory_limit=memory_limit, recomputed=recomputed
    )


def _whole_number(value: Any) -> Any:
    """Return a whole float as an int, for messages."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
