"""The space of a search in three parts: structures, degrees, and independent choices.

An axis is structural if it changes the number of virtual stages, or if other attributes depend on
its value: each combination of such axes is bound on its own. Degrees are numbers that formulas take
as arrays; all combinations of degrees that are legal for some choice form one flattened array axis.
The other axes are choices: each value is set independently, and costs time only where a plugin
reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial, reduce
from itertools import product
from math import prod
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, field, frozen

from parcost.contract.schema import block_type, change_values
from parcost.contract.searches import Axis
from parcost.language.diagnostics import Diagnostic, did_you_mean
from parcost.language.errors import SpecError
from parcost.language.numbers import spec_text
from parcost.search.attributes import choice_of, find
from parcost.search.axis_kinds import AxisKinds
from parcost.search.merge import merge_studies
from parcost.search.mesh import Mesh, Places, join_places
from parcost.search.spec_values import setting_text
from parcost.search.term_arrays import mask
from parcost.search.variants import Choice, Combination, VariantAnswers, Variants

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.pipelines import Pipeline
    from parcost.contract.plugin import Fault
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario
    from parcost.engine.study import SpecStudy

LARGEST = 10**10  # points, legal or not
MOST_VALUES = 1000  # of one axis: each is bound separately, in some milliseconds
MOST_TOGETHER = 5 * 2**15  # points of degrees, legal or not, of structures in one group


@frozen(kw_only=True, eq=False, slots=False)
class Structure:
    """All layouts with the same virtual stages: combinations of degrees x values of *choices*.

    *whole* is the study at all combinations of degrees, legal or not. *kept* are the indices of the
    combinations in use. *legal* is a mask of layouts: one dimension per choice, and the last one
    for *kept*. *cut* returns the pipeline for given values of the choices, if the group of
    structures has computed it.
    """

    values: Mapping[str, Any]
    whole: SpecStudy
    kept: NDArray[np.intp]
    choices: Sequence[Choice]
    legal: NDArray[np.bool_]
    faults: list[Fault]
    cut: Callable[[Combination], Pipeline | None] | None = None

    @cached_property
    def study(self) -> SpecStudy:
        """The study at the points in use."""
        return self.whole.at_points(self.kept)

    @cached_property
    def degrees(self) -> Mapping[str, NDArray[np.float64]]:
        """The values of the degrees at each point, by attribute."""
        axes = self.whole.axes
        return {name: np.asarray(v, dtype=np.float64)[self.kept] for name, v in axes}

    @cached_property
    def variants(self) -> Variants:
        """The study under all combinations of choices."""
        return Variants(self.study, self.choices, self.faults, cut=self.cut)

    @property
    def points(self) -> int:
        """The number of legal layouts."""
        return int(self.legal.sum())

    def select_points(self, points: NDArray[np.intp]) -> Structure:
        """Return the structure with only some of its points."""
        return evolve(self, kept=self.kept[points], legal=self.legal[..., points], cut=None)


@frozen(kw_only=True, eq=False, slots=False)
class StructureGroup:
    """Structures that are evaluated together as arrays on a *mesh*; none of them is empty.

    *rejected* counts the points that each rule rejects, and *looked* the structures behind these
    counts.
    """

    structures: Sequence[Structure]
    mesh: Mesh
    variants: Variants
    rejected: Mapping[str, int] = {}
    looked: int = 0

    @property
    def points(self) -> int:
        """The number of legal layouts."""
        return sum(structure.points for structure in self.structures)

    def places(self, place: int, points: NDArray[np.intp] | None = None) -> Places:
        """Return the mesh indices of the points of a structure, or of some of them."""
        kept = self.structures[place].kept
        return self.mesh.places(place, kept if points is None else kept[points])

    def release(self) -> None:
        """Release every study and answer: they have reference cycles, and hold arrays."""
        self.variants.release()
        for structure in self.structures:
            if "variants" in vars(structure):
                structure.variants.release()


def _group(
    structures: Sequence[Structure], mesh: Mesh, *, legal: bool = False
) -> StructureGroup | None:
    """Return *structures* as one study on *mesh*, or None if they cannot be merged.

    *legal*: all their points are legal; otherwise no rule was checked yet.
    """
    merged = merge_studies([s.whole for s in structures], mesh, _numbers(structures))
    if merged is None:
        return None
    first, several = structures[0], len(structures) > 1
    point = merged.point if several else {}
    known = [mesh.places(i, s.kept) for i, s in enumerate(structures)]
    pick = join_places(known).pick if legal else None
    variants = Variants(merged.study, first.choices, first.faults, point, legal=pick)
    cuts = [partial(variants.part_pipeline, places.pick) if several else None for places in known]
    structures = [evolve(s, cut=cut) for s, cut in zip(structures, cuts, strict=True)]
    if several:
        variants.parts = [partial(getattr, s, "variants") for s in structures]
    return StructureGroup(structures=structures, mesh=mesh, variants=variants)


def _numbers(structures: Sequence[Structure]) -> Mapping[str, Sequence[float]]:
    """Return the numeric values of *structures* by attribute, one for each structure."""
    first = structures[0].values
    return {
        name: [structure.values[name] for structure in structures]
        for name, value in first.items()
        if _is_number(value)
    }


@frozen(kw_only=True, eq=False)
class Space:
    """The space of a search.

    *texts* are numbers in the notation of a spec, by axis. *unsearched* has values that are not
    searched, by axis: the user did not name them, or they are not available. *follows* are axes
    that are not chosen and follow from the others. *short* are titles of columns by attribute, and
    *notes* explain values.
    """

    scenario: Scenario
    structural: Sequence[Axis]
    cuts: Sequence[Axis]
    degrees: Sequence[Axis]
    choices: Sequence[Axis]
    texts: Mapping[str, Mapping[float, str]]
    unsearched: Sequence[Axis] = ()
    follows: Sequence[Axis] = ()
    short: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}
    faults: list[Fault] = field(factory=list)  # plugins that failed so far
    merges: bool = True  # structures that differ in numbers alone are asked about at once

    @property
    def axes(self) -> Sequence[Axis]:
        """Every axis of the space."""
        return (*self.structural, *self.cuts, *self.degrees, *self.choices)

    @property
    def size(self) -> int:
        """The number of points, legal or not."""
        return prod(len(axis.values) for axis in self.axes)

    def text(self, path: str, value: Any) -> str:
        """Return a value of the axis at *path* in the notation of the spec."""
        value = spec_text(value)
        return self.texts.get(path, {}).get(value, f"{value}")

    def groups(self) -> Iterator[StructureGroup]:
        """Yield all structures in groups, including groups without a legal layout.

        Structures that differ only in numbers share a group; those that differ in words do not.
        """
        words = [a for a in self.structural if not all(map(_is_number, a.values))]
        numbers = [a for a in self.structural if a not in words]
        for outer in product(*(_middle_first(axis.values) for axis in words)):
            at = {a.attribute: v for a, v in zip(words, outer, strict=True)}
            legal = (one for few in self._batches(at, numbers) for one in _legal_groups(few))
            yield from _larger_groups(legal) if self.merges else legal

    def _batches(
        self, outer: Mapping[str, Any], numbers: Sequence[Axis]
    ) -> Iterator[Sequence[Structure]]:
        """Yield the structures with the words *outer*, in batches that are checked at once."""
        found: list[Structure] = []
        points = 0
        for inner in product(*(_middle_first(axis.values) for axis in numbers)):
            at = {**outer, **{a.attribute: v for a, v in zip(numbers, inner, strict=True)}}
            at = {axis.attribute: at[axis.attribute] for axis in self.structural}
            for whole in self._whole(at):
                count = len(whole.kept)
                if found and (not self.merges or points + count > MOST_TOGETHER):
                    yield found
                    found, points = [], 0
                found.append(whole)
                points += count
        if found:
            yield found

    def structures(self) -> Iterator[Structure]:
        """Yield every structure with a legal layout."""
        for group in self.groups():
            yield from group.structures

    def count(self) -> int:
        """Return the number of structures."""
        return prod(len(axis.values) for axis in (*self.structural, *self.cuts))

    def _whole(self, at: Mapping[str, Any]) -> Iterator[Structure]:
        """Yield structures that differ only in the split of the model, legal or not."""
        degrees = {axis.attribute: list(axis.values) for axis in self.degrees}
        others = {axis.attribute: axis.values[0] for axis in (*self.cuts, *self.choices)}
        varied = self.scenario.replace({**others, **at, **degrees})  # which the spec may sweep
        studies = varied.studies()
        if len(studies) > 1:
            names = ", ".join(f"`{name}`" for name in degrees)
            message = (
                f"the split into stages depends on one of {names}, and a search must know it in "
                "advance"
            )
            help = "set these attributes with `--set`, or write the number of stages as a number"
            path = self.scenario.path
            raise SpecError([Diagnostic("stages-depend", message, place=path, help=help)])
        (study,) = studies
        count = prod(len(values) for values in degrees.values())
        cuts, choices = (
            [choice_of(self.scenario, study, axis) for axis in axes]
            for axes in (self.cuts, self.choices)
        )
        everything = np.ones((*(len(choice.values) for choice in choices), 1), dtype=bool)
        for place in product(*(range(len(cut.values)) for cut in cuts)):
            cut = {c.name: c.values[i] for c, i in zip(cuts, place, strict=True)}
            yield Structure(
                values={**at, **cut},
                whole=_with_choices(study, cuts, place),
                kept=np.arange(count),
                choices=choices,
                legal=np.broadcast_to(everything, (*everything.shape[:-1], count)),
                faults=self.faults,
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _middle_first(values: Sequence[Any]) -> Sequence[Any]:
    """Return *values* from the middle outwards: extremes are rarely the best.

    >>> _middle_first([1, 2, 4, 8, 16])
    [4, 8, 2, 16, 1]
    """
    middle = (len(values) - 1) / 2
    order = sorted(range(len(values)), key=lambda i: (abs(i - middle), -i))
    return [values[i] for i in order]


def _with_choices(study: SpecStudy, choices: Sequence[Choice], place: Sequence[int]) -> SpecStudy:
    """Return *study* with choice ``choices[k]`` set to its value with the index ``place[k]``."""
    if not choices:
        return study
    chosen: dict[int, dict[str, Any]] = {}
    for choice, i in zip(choices, place, strict=True):
        for block in study.blocks[choice.schema]:
            if vars(block)["label"] == choice.label:
                chosen.setdefault(id(block), {})[choice.attribute] = choice.values[i]

    def values_of(block: object) -> Mapping[str, Any]:
        return chosen.get(id(block), {})

    return study.with_blocks(change_values(study.blocks, values_of)[0])


def _legal_groups(structures: Sequence[Structure]) -> Iterator[StructureGroup]:
    """Yield groups of *structures* with only legal points; structures that can be merged share a
    group.
    """
    together = _group(structures, Mesh.from_axes(structures[0].whole.axes))
    if together is None:
        assert len(structures) > 1  # one fits with itself
        for structure in structures:
            yield from _legal_groups([structure])
        return
    rejected: Counter[str] = Counter()
    legal = list(_legal_structures(together, rejected))
    together.release()
    if legal:
        mesh = together.mesh.restrict([structure.kept for structure in legal])
        found = _group(legal, mesh, legal=True)
        assert found is not None  # they fit together before
        yield evolve(found, rejected=rejected, looked=len(structures))
    else:
        yield evolve(together, structures=[], rejected=rejected, looked=len(structures))


def _larger_groups(groups: Iterable[StructureGroup]) -> Iterator[StructureGroup]:
    """Yield *groups* merged as far as possible, so that plugins are called less often."""
    waiting: StructureGroup | None = None
    for group in groups:
        both = None if waiting is None else _join(waiting, group)
        if waiting is not None and both is None:
            yield waiting
        waiting = group if both is None else both
    if waiting is not None:
        yield waiting


def _join(one: StructureGroup, other: StructureGroup) -> StructureGroup | None:
    """Return two groups as one, None where they are too large or too different."""
    structures = [*one.structures, *other.structures]
    rejected = Counter(one.rejected) + Counter(other.rejected)
    looked = one.looked + other.looked
    if not (one.structures and other.structures):
        return evolve(other if other.structures else one, rejected=rejected, looked=looked)
    whole = Mesh.from_axes(structures[0].whole.axes)
    mesh = whole.restrict([structure.kept for structure in structures])
    if len(structures) * prod(map(len, mesh.used)) > MOST_TOGETHER // 2:  # memory
        return None
    found = _group(structures, mesh, legal=True)
    return None if found is None else evolve(found, rejected=rejected, looked=looked)


def _legal_structures(group: StructureGroup, rejected: Counter[str]) -> Iterator[Structure]:
    """Yield structures with a legal layout, at the points that are legal for some choice.

    *rejected* receives the number of points that each rule rejects.
    """
    variants = group.variants
    with np.errstate(all="ignore"):
        hooks = range(variants.plugins("checks"))
        shared = [variants.common_answers("checks", position) for position in hooks]
        sizes = group.mesh.sizes
        rank = 1 + len(sizes)
        masks = [
            None if asked is None else list(_masks(asked, variants.shape, rank)) for asked in shared
        ]
        for place, structure in enumerate(group.structures):
            holding: dict[tuple[int, ...], NDArray[np.bool_]] = {}
            for position, known in enumerate(masks):
                own: Iterable[tuple[str, NDArray[np.bool_]]] = known or ()
                if known is None:
                    asked = structure.variants.plugin_answers("checks", position)
                    own = _masks(asked, variants.shape, 1)
                for id_, whole in own:
                    holds = _of_structure(whole, len(variants.shape), place, sizes)
                    broken = int(holds.size - np.count_nonzero(holds))
                    if broken:
                        rejected[id_] += broken * (structure.legal.size // holds.size)
                        before = holding.get(holds.shape)
                        holding[holds.shape] = holds if before is None else before & holds
            choices = tuple(range(len(variants.shape)))
            possible = np.ones((1, *sizes), dtype=bool)
            for holds in holding.values():
                possible &= holds.any(axis=choices)
            points = np.flatnonzero(possible)
            places = group.mesh.places(0, points)
            legal = np.ones((*variants.shape, len(points)), dtype=bool)
            for holds in holding.values():
                legal &= places.pick(holds)
            kept = np.flatnonzero(legal.any(axis=choices))
            if len(kept):
                yield evolve(structure, kept=points[kept], legal=legal[..., kept])


def _of_structure(
    holds: NDArray[np.bool_], choices: int, place: int, sizes: tuple[int, ...]
) -> NDArray[np.bool_]:
    """Return the part of a mask that belongs to one structure, in mesh shape.

    *holds* is over the mesh, or over the points of the structure. The result has dimensions for
    *choices*, one for the structure at *place*, and one for each degree.
    """
    lead, shape = holds.shape[:choices], holds.shape[choices:]
    if len(shape) == 1 + len(sizes):
        at = place if shape[0] > 1 else 0
        return holds[(slice(None),) * choices + (slice(at, at + 1),)]
    return holds.reshape(*lead, 1, *(sizes if shape[-1] > 1 else (1,) * len(sizes)))


def _masks(
    asked: VariantAnswers, shape: Sequence[int], rank: int
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the mask of each rule: a dimension for each choice, followed by *rank* dimensions."""
    read, answers = asked
    distinct = {id(a): a for a in answers.values()}
    errors = {
        key: [c for _, c in answer if c.severity == "error"] for key, answer in distinct.items()
    }
    for id_ in dict.fromkeys(c.id for found in errors.values() for c in found):
        one = {
            key: reduce(and_, (np.asarray(c.holds, bool) for c in found if c.id == id_), np.True_)
            for key, found in errors.items()
        }
        if not all(holds.all() for holds in one.values()):
            holds = {part: one[id(answer)] for part, answer in answers.items()}
            yield id_, mask(read, holds, shape, rank)


# --- which axes there are ---------------------------------------------------------------


def space(
    scenario: Scenario,
    given: Mapping[str, Sequence[Any]],
    names: Sequence[str],
    *,
    most: float = LARGEST,
) -> Space:
    """Return the space of *scenario*: the axes called *names*, or all that plugins offer.

    *given* are the values of axes that the user restricts, by the attribute's path. *most* is the
    maximum number of points.

    Raises:
        SpecError: There is no such axis, or the space is too large.
    """
    scenario = evolve(scenario, judged=False)
    study = scenario.first
    known = plugin_axes(study)
    given = {
        attribute_of_axis(study, name, known, anything=True): values
        for name, values in given.items()
    }
    wanted = (
        [n if n in given else attribute_of_axis(study, n, known) for n in names]
        if names
        else list(known)
    )
    axes = [
        Axis(
            attribute=path,
            values=_plain_values(given[path] if path in given else known[path].values),
        )
        for path in dict.fromkeys((*wanted, *given))
    ]
    _check_axes(scenario, axes, most)
    for axis in axes:
        _check_block(study, axis.attribute)
    written_out = [_axis_texts(scenario, study, axis) for axis in axes]
    apart = AxisKinds.sort(scenario, study, [axis for axis, _ in written_out])
    chosen = {axis.attribute for axis in axes}
    follows = [axis for axis in derived_axes(study) if axis.attribute not in chosen]
    titled = [*known.values(), *follows]
    return Space(
        scenario=scenario,
        texts={axis.attribute: texts for axis, texts in written_out},
        structural=apart.structural,
        cuts=apart.cuts,
        degrees=apart.degrees,
        choices=apart.choices,
        follows=follows,
        short={axis.attribute: axis.short for axis in titled if axis.short},
        notes={axis.attribute: axis.note for axis in _axes(study) if axis.note},
        unsearched=[
            known[path]
            for path in dict.fromkeys(wanted)
            if path not in given and (known[path].others or known[path].lacking)
        ],
        faults=list(study.faults),
    )


def _check_axes(scenario: Scenario, axes: Sequence[Axis], most: float) -> None:
    """Raise if an axis has no value, or the axes have over *most* points."""
    empty = [axis.attribute for axis in axes if not axis.values]
    if empty:
        message = f"no value is left for {' or '.join(f'`{e}`' for e in empty)}"
        raise SpecError([Diagnostic("empty-space", message, place=scenario.path)])
    long = max(axes, key=lambda axis: len(axis.values), default=None)
    if long is not None and len(long.values) > MOST_VALUES:
        message = f"`{long.attribute}` has {len(long.values):,} values; the limit of an axis of a "
        message += f"search is {MOST_VALUES:,}, because each value is bound separately"
        help = "list fewer values, as in `divisors(64)` or `range(8, 64, 8)`, or sweep the spec "
        help += "with `parcost eval`"
        raise SpecError([Diagnostic("too-many-points", message, help=help, place=scenario.path)])
    size = prod(len(axis.values) for axis in axes)
    if size > most:
        sizes = " x ".join(f"{a.attribute.rpartition('.')[2]} {len(a.values)}" for a in axes)
        message = f"the search space has {size:.3g} points ({sizes}); the limit is {most:.0e}"
        help = "give axes fewer values, as in `--over layout.tp=1,2,4,8`, name fewer of them "
        help += "with `--axes`, or draw some layouts at random with `--sample 1000`"
        raise SpecError([Diagnostic("too-many-points", message, help=help, place=scenario.path)])


def _check_block(study: SpecStudy, path: str) -> None:
    """Reject an attribute of a block that is inside another block."""
    block, _ = find(study, path)
    if not any(block is own for blocks in study.blocks.values() for own in blocks):
        message = f"a search cannot choose `{path}`, which is in a nested block"
        help = "write a block for each of its values, and choose among them by name, as in "
        help += "`cluster { fabric = [slow, fast] }`"
        place = study.path or study.name
        raise SpecError([Diagnostic("not-an-axis", message, place=place, help=help)])


def _axis_texts(
    scenario: Scenario, study: SpecStudy, axis: Axis
) -> tuple[Axis, Mapping[float, str]]:
    """Return *axis* with quoted strings and numeric quantities, and the text of each number."""
    block, attribute = find(study, axis.attribute)
    field_ = block_type(type(block)).fields[attribute]
    values: Sequence[Any] = axis.values
    texts: dict[float, str] = {}
    if field_.kind == "text":
        values = [f'"{value.strip(chr(34))}"' for value in values]
    elif field_.kind == "quantity":
        if any(isinstance(value, str) for value in values):
            bound = [scenario.replace({axis.attribute: value}).first for value in values]
            values = [getattr(find(one, axis.attribute)[0], attribute) for one in bound]
        for text, number in zip(axis.values, values, strict=True):
            texts.setdefault(number, setting_text(axis.attribute, field_, text, number))
    return Axis(attribute=axis.attribute, values=values), texts


def _plain_values(values: Sequence[Any]) -> list[Any]:
    """Return *values* as Python numbers instead of NumPy scalars."""
    return [value.item() if hasattr(value, "item") else value for value in values]


def plugin_axes(study: SpecStudy) -> dict[str, Axis]:
    """Return the axes that plugins offer for *study*, by attribute."""
    return {axis.attribute: axis for axis in _axes(study) if not axis.follows}


def derived_axes(study: SpecStudy) -> list[Axis]:
    """Return the derived axes of *study*."""
    return list({axis.attribute: axis for axis in _axes(study) if axis.follows}.values())


def derived_value(axis: Axis, study: Study) -> Any:
    """Return the value of a derived axis: a scalar, or one value for each point."""
    if axis.value is not None:
        return axis.value(study)
    block, attribute = find(study, axis.attribute)
    return getattr(block, attribute)


def _axes(study: SpecStudy) -> list[Axis]:
    return [axis for _, axis in study.plugins.ask("axes", study.faults, study=study)]


def attribute_of_axis(
    study: SpecStudy, name: str, offered: Mapping[str, Axis], *, anything: bool = False
) -> str:
    """Return the attribute of the axis called *name*.

    It is an axis of *offered*; with *anything* it may be any path of an attribute.

    Raises:
        SpecError: There is no such axis.
    """
    short = {path.rpartition(".")[2]: path for path in offered}
    short["schedule"] = "schedule.kind"
    if name in offered or name in short or (anything and "." in name):
        return short.get(name, name)
    near = did_you_mean(name, [*offered, *short]) or f"axes are {', '.join(offered)};"
    help = f"{near} any other attribute is an axis if its values are listed: `--over PATH=A|B`"
    message = f"no axis is called `{name}`"
    raise SpecError([Diagnostic("unknown-axis", message, help=help, place=study.path)])
