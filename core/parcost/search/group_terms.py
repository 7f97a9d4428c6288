"""Results of plugins for a group of structures, and tables of their terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from parcost.search.mesh import Places
from parcost.search.serial_work import SerialWork, minor_choices
from parcost.search.space import StructureGroup
from parcost.search.term_arrays import Windows, at_points, select_terms, stack_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.search.variants import VariantAnswers


@frozen(kw_only=True, eq=False)
class PluginAnswers:
    """The answers of one plugin: one answer *shared* by all structures, or one answer per
    structure.
    """

    shared: VariantAnswers | None
    own: Sequence[VariantAnswers] = ()

    @property
    def every(self) -> Sequence[VariantAnswers]:
        """All answers: the shared answers, or the answers by structure."""
        return self.own if self.shared is None else [self.shared]

    @property
    def read(self) -> frozenset[int]:
        """The choices on which the answers depend."""
        return frozenset(k for read, _ in self.every for k in read)


class GroupAnswers:
    """The answers of plugins for all structures of a group, restricted to legal layouts."""

    def __init__(self, group: StructureGroup) -> None:
        self.group, self.variants = group, group.variants
        self._own = [np.any(structure.legal, axis=-1) for structure in group.structures]
        self._any: NDArray[np.bool_] = np.any(self._own, axis=0)

    def answers_to(self, hook: str) -> Sequence[PluginAnswers]:
        """Return the answers of all plugins."""
        return [self._plugin_answers(hook, i) for i in range(self.variants.plugins(hook))]

    def _plugin_answers(self, hook: str, position: int) -> PluginAnswers:
        """Return the answers of one plugin in all legal variants."""
        shared = self.variants.common_answers(hook, position, self._any)
        if shared is not None:
            return PluginAnswers(shared=shared)
        pairs = zip(self.group.structures, self._own, strict=True)
        own = [s.variants.plugin_answers(hook, position, occurs) for s, occurs in pairs]
        return PluginAnswers(shared=None, own=own)


class TermTable:
    """The terms of some plugins: terms shared by all structures, and terms of each structure."""

    def __init__(
        self, group: StructureGroup, answers: Iterable[PluginAnswers], hosts: Windows
    ) -> None:
        shape, rank = group.variants.shape, 1 + len(group.mesh.sizes)
        self._group, self._choices = group, len(shape)
        own: list[Sequence[VariantAnswers]] = []
        self._shared = stack_terms(_share_answers(answers, own), shape, hosts, rank)
        self._own = [
            stack_terms((answer[place] for answer in own), shape, hosts, 1)
            for place in range(len(group.structures))
        ]

    def serial_work(self, place: int, places: Places) -> Iterator[tuple[SerialWork, Any]]:
        """Yield serial work, each with a function that selects it at all points of one
        structure.
        """
        shared, *own = self._work
        yield shared, places.pick
        yield own[place], partial(at_points, kept=slice(None))

    @cached_property
    def _work(self) -> Sequence[SerialWork]:
        """The serial work of the shared terms, followed by that of each structure."""
        every = (self._shared, *self._own)
        return [SerialWork(terms, self._choices, self._minor) for terms in every]

    @cached_property
    def _minor(self) -> Sequence[int]:
        return minor_choices(self._shared, self._choices, self._group.places(0).pick)

    @property
    def is_shared(self) -> bool:
        """Whether all terms are shared by all structures."""
        return not any(self._own)

    def select_terms(
        self,
        place: int,
        points: NDArray[np.intp],
        places: Places,
        choices: Sequence[NDArray[np.intp]] = (),
    ) -> list[tuple[Plugin, Any]]:
        """Return the terms of one structure at *points*; *places* are their mesh indices.

        *choices* are the indices of the choices at each point; without *choices*, all are kept.
        """
        if not choices:
            own = select_terms(self._own[place], Places((points,)))
            return [*select_terms(self._shared, places), *own]
        found = select_terms(self._shared, Places((*choices, *places.index)))
        return [*found, *select_terms(self._own[place], Places((*choices, points)))]


def _share_answers(
    answers: Iterable[PluginAnswers], own: list[Sequence[VariantAnswers]]
) -> Iterator[VariantAnswers]:
    """Yield the answers shared by all structures, and append the others to *own*."""
    for answer in answers:
        if answer.shared is not None:
            yield answer.shared
        else:
            own.append(answer.own)


def release_each(answers: list[PluginAnswers]) -> Iterator[PluginAnswers]:
    """Yield *answers* and release each, because their arrays take much memory."""
    while answers:
        yield answers.pop(0)
