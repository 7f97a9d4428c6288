"""Structures that differ only in numbers, merged into one study over arrays.

Structures with 2 and with 4 stages are two positions in the first dimension of the arrays. A number
that depends on the stages, such as the number of replicas, is an array. Reads of the number of
stages are recorded, because it determines the shape of a step. A hook that reads it directly is
called for each structure. A hook that queries a ``stage_number`` is called once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from parcost.contract.queries import STRUCTURES, Memo
from parcost.contract.schema import block_name, block_type, on_axes
from parcost.engine.study import SpecStudy
from parcost.search.mesh import Mesh, squeeze

_PLAIN = (str, int, float, bool, type(None))


class _DifferentError(Exception):
    """Structures differ in more than numbers."""


@attrs.frozen(kw_only=True, eq=False)
class MergedStudy:
    """A study over the points of several studies; *point* has the value of each merged axis."""

    study: SpecStudy
    point: Mapping[str, Any]


def merge_studies(
    studies: Sequence[SpecStudy], mesh: Mesh, axes: Mapping[str, Sequence[float]]
) -> MergedStudy | None:
    """Return *studies* merged into one over the points of *mesh*, or None if they differ in more
    than numbers.

    *axes* are the numbers in which they may differ, one for each study.
    """
    merger = _Merger(mesh)
    try:
        return merger.study(studies, axes)
    except _DifferentError:
        return None


class _Merger:
    """Merges blocks at the same place of several studies."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.point: dict[str, Any] = {STRUCTURES: 0}
        self.made: dict[tuple[int, ...], Any] = {}

    def study(
        self, studies: Sequence[SpecStudy], axes: Mapping[str, Sequence[float]]
    ) -> MergedStudy:
        first = studies[0]
        for other in studies:
            alike = (
                other.plugins is first.plugins
                and list(other.blocks) == list(first.blocks)
                and [name for name, _ in other.axes] == [name for name, _ in first.axes]
                and dict(other.lets) == dict(first.lets)
                and list(other.lacking) == list(first.lacking)
            )
            if not alike:
                raise _DifferentError
        blocks = {
            schema: self.value([study.blocks[schema] for study in studies])
            for schema in first.blocks
        }
        swept: list[tuple[str, Any]] = [
            (name, self.flat([study.axes[i][1] for study in studies]))
            for i, (name, _) in enumerate(first.axes)
        ]
        swept += [(name, self.repeat(values)) for name, values in axes.items()]
        study = attrs.evolve(first, blocks=blocks, axes=swept, faults=[], memo=Memo())
        return MergedStudy(study=study, point=self.point)

    def value(self, values: Sequence[Any]) -> Any:
        """Return one value for *values*, one from each study; arrays are joined over the mesh."""
        first = values[0]
        if any(isinstance(value, np.ndarray) for value in values):
            return self.flat(values)
        if hasattr(type(first), "__block__"):
            return self.block(values)
        if isinstance(first, tuple) and not _plain(first):
            if any(not isinstance(v, tuple) or len(v) != len(first) for v in values):
                raise _DifferentError
            return tuple(self.value(items) for items in zip(*values, strict=True))
        if all(_equal(first, value) for value in values):
            return first
        raise _DifferentError

    def block(self, blocks: Sequence[Any]) -> Any:
        """Return one merged block for *blocks*, one from each study."""
        key = tuple(map(id, blocks))
        if key not in self.made:
            self.made[key] = self._block(blocks)
        return self.made[key]

    def _block(self, blocks: Sequence[Any]) -> Any:
        first = blocks[0]
        names = list(vars(first))
        held = [vars(block) for block in blocks]
        if len({*map(type, blocks)}) > 1 or any(list(attributes) != names for attributes in held):
            raise _DifferentError
        fields = block_type(type(first)).fields
        values: dict[str, Any] = {}
        axes: dict[str, tuple[str, Any]] = {}
        for name in names:
            own = [attributes[name] for attributes in held]
            types = {*map(type, own)}
            if len(types) == 1 and own[0].__class__ in _PLAIN and own.count(own[0]) == len(own):
                values[name] = own[0]
                continue
            numbers = all(type(value) in (int, float) for value in own)
            if numbers and any(value != own[0] for value in own) and not fields[name].structural:
                values[name] = self.repeat(own)
                continue
            try:
                values[name] = self.value(own)
            except _DifferentError:
                if name == "label" or not all(_plain(value) for value in own):
                    raise
                axis = f"{block_name(first)}.{name} of structures"
                axes[name], values[name] = (axis, own[0]), own[0]
                self.point[axis] = own[0]
        same = not axes and all(values[name] is vars(first)[name] for name in names)
        return first if same else on_axes(first, values, axes)

    def flat(self, values: Sequence[Any]) -> Any:
        """Return arrays over the points of each study, joined to one array over the mesh."""
        key = tuple(map(id, values))
        if key not in self.made:
            self.made[key] = values, self._flat(values)  # so that their ids stay theirs
        return self.made[key][1]

    def _flat(self, values: Sequence[Any]) -> Any:
        parts = []
        for value in values:
            array = np.asarray(value, dtype=np.float64)
            if array.shape not in ((), (self.mesh.count,)):
                if all(other is value for other in values):
                    return value
                raise _DifferentError
            ones = array.reshape((1,) * len(self.mesh.sizes)) if array.ndim == 0 else None
            parts.append(self.mesh.expand(array) if ones is None else ones)
        return squeeze(np.stack(np.broadcast_arrays(*parts)))

    def repeat(self, values: Sequence[float]) -> Any:
        """Return one number per study as an array that broadcasts over all its points."""
        numbers = np.asarray(values, dtype=np.float64)
        return numbers.reshape(-1, *(1,) * len(self.mesh.sizes))


def _plain(value: Any) -> bool:
    """Return whether *value* is a word, a number, or a list of them."""
    if isinstance(value, tuple):
        return all(map(_plain, value))
    return isinstance(value, _PLAIN)


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal, compared by type, items and attributes."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, _PLAIN):
        return bool(a == b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    if attrs.has(type(a)):
        read: Callable[[Any, str], Any] = getattr
        names = [field.name for field in attrs.fields(type(a))]
        return all(_equal(read(a, name), read(b, name)) for name in names)
    return False
