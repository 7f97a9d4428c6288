"""The split of a job's ranks into groups: the axes of every group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any, cast

import attrs

from parcost import Real, Study, record
from parcost.numeric import all_of, minimum
from parcost_plugins.physics.partition import stages
from parcost_plugins.topology.occupancy import Axes
from parcost_plugins.vocabulary import Layout, LocalUpdates, Model, Sharding, Training
from parcost_plugins.vocabulary.sharding import trains_apart

#: Degrees of the experts that an order may place as well.
OPTIONAL = ("ep", "etp")


def degrees() -> list[str]:
    """Return the degrees of the dense part of a layout, in the default order."""
    default: str = attrs.fields(cast("Any", Layout)).order.default
    return [name for name in default.split("-") if name not in OPTIONAL]


def dense_order(order: str) -> list[str]:
    """Return the degrees of the dense part in the sequence of *order*.

    Degrees that it omits come last.

    >>> dense_order("pp-tp-dp"), dense_order("dp-typo")
    (['pp', 'tp', 'dp', 'cp'], ['dp', 'tp', 'cp', 'pp'])
    """
    return [name for name in _complete(order) if name not in OPTIONAL]


def expert_order(order: str) -> list[str]:
    """Return the degrees of the experts in the sequence of *order*.

    They replace the dense degrees: etp replaces tp, and ep and edp replace dp. An order may place
    etp and ep elsewhere.

    >>> expert_order("tp-cp-dp-pp"), expert_order("ep-tp-pp-dp")
    (['etp', 'ep', 'edp', 'pp'], ['ep', 'etp', 'pp', 'edp'])
    """
    named = _complete(order)
    stands_for = {
        "tp": [] if "etp" in named else ["etp"],
        "cp": [],
        "dp": ["edp"] if "ep" in named else ["ep", "edp"],
    }
    return [expert for name in named for expert in stands_for.get(name, [name])]


def _complete(order: str) -> list[str]:
    known = degrees()
    named = [name for name in dict.fromkeys(order.split("-")) if name in (*known, *OPTIONAL)]
    return [*named, *(name for name in known if name not in named)]


@record(kw_only=True, eq=False)
class Decomposition:
    """The axes of the groups of a layout, by name.

    Besides the degrees, *dp_cp* are the ranks that hold the same dense parameters. Of these,
    *shard* split the state, *replicate* hold the same shard, and *workers* train separately. A
    *worker* has all ranks of one worker, and a *stage* all ranks of one stage. *edp* are the ranks
    that hold the same experts. *dense* and *experts* are the stride of pp in either part; they must
    be equal.
    """

    axes: dict[str, Axes]
    dense: Real
    experts: Real

    @classmethod
    def from_study(cls, study: Study) -> Decomposition:
        """Return the axes of all groups of *study*, with groups of experts if there are any."""
        layout = study[Layout]
        tp, cp, pp, dp = layout.tp, layout.cp, stages(study), layout.dp
        sizes = {"tp": tp, "cp": cp, "pp": pp, "dp": dp}
        strides = _strides(dense_order(layout.order), sizes)
        axes: dict[str, Axes] = {name: [(strides[name], sizes[name])] for name in sizes}
        alike = join([(strides["cp"], cp), (strides["dp"], dp)])
        axes["dp_cp"] = alike
        within, axes["workers"] = split(alike, dp * cp / _workers(study))
        axes["shard"], axes["replicate"] = split(within, _shard(study, dp * cp))
        if trains_apart(study):
            axes["worker"] = join([*axes["tp"], *within, *axes["pp"]])
        training = study.get(Training)
        if training is not None and training.precision.amax_group == "stage":
            axes["stage"] = join([*axes["tp"], *alike])
        of_pp = strides["pp"]
        if has_experts(study):
            ep, etp = layout.ep, layout.etp
            sizes = {"etp": etp, "ep": ep, "edp": tp * cp * dp / (ep * etp), "pp": pp}
            strides = _strides(expert_order(layout.order), sizes)
            of_pp = strides.pop("pp")
            axes |= {name: [(stride, sizes[name])] for name, stride in strides.items()}
        return cls(axes=axes, dense=axes["pp"][0][0], experts=of_pp)


def _workers(study: Study) -> Real:
    local = study.get(LocalUpdates)
    return local.workers if local else 1.0


def _shard(study: Study, ranks: Real) -> Real:
    sharding = study.get(Sharding)
    return sharding.shard if sharding else ranks


def _strides(order: Sequence[str], sizes: dict[str, Real]) -> dict[str, Real]:
    strides: dict[str, Real] = {}
    stride: Real = 1.0
    for name in order:
        strides[name] = stride
        stride = stride * sizes[name]
    return strides


def _compare_strides(this: tuple[Real, Real], that: tuple[Real, Real]) -> int:
    return -1 if all_of(this[0] <= that[0]) else 1


def join(axes: Axes) -> Axes:
    """Return *axes* by stride, without axes of one rank, with contiguous axes merged.

    >>> join([(4.0, 2.0), (1.0, 1.0), (2.0, 2.0)])
    [(2.0, 4.0)]
    """
    found: list[tuple[Real, Real]] = []
    for stride, size in sorted(axes, key=cmp_to_key(_compare_strides)):
        if all_of(size == 1):
            continue
        if found and all_of(found[-1][0] * found[-1][1] == stride):
            near, n = found.pop()
            found.append((near, n * size))
        else:
            found.append((stride, size))
    return found


def split(axes: Axes, ranks: Real) -> tuple[Axes, Axes]:
    """Return *axes* split in two: the nearest *ranks* members, and the groups of such blocks of
    members.

    >>> split([(1.0, 2.0), (8.0, 4.0)], 4.0)
    ([(1.0, 2.0), (8.0, 2.0)], [(2.0, 1.0), (16.0, 2.0)])
    """
    near, far = [], []
    for stride, extent in axes:
        taken = minimum(extent, ranks)
        near.append((stride, taken))
        far.append((stride * taken, extent / taken))
        ranks = ranks / taken
    return near, far


def has_experts(study: Study) -> bool:
    """Return whether the model has experts, or the layout splits experts."""
    layout = study[Layout]
    if not (all_of(layout.ep == 1) and all_of(layout.etp == 1)):
        return True
    return any(model.experts for model in study.all(Model))
