"""Attributes in a spec that no plugin reads, so that they have no effect.

A block declares which of its attributes have an effect only with another one (``used_with`` of
:func:`parcost.block`). Those in the study's own file record whether they are read. If an attribute
is not read during an evaluation, the results are the same without it::

    overlap { tensor = off, chunks = 4 }

    warning[no-effect]: `overlap.chunks` has no effect
      help: it needs `overlap.tensor = pipelined`

Reads by rules do not count, because rules only validate attributes. Values of imported files and
values with provenance are not reported: other layouts may need them. A study that a rule rejects is
not evaluated, and has no such warnings.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from attrs import evolve

from parcost.binding.defaults import plain_default
from parcost.contract.checks import Check
from parcost.contract.origin import Origin
from parcost.contract.queries import READS, Reads, pure_function
from parcost.contract.schema import block_name, block_type
from parcost.contract.study import Study
from parcost.engine.rules import NAMES
from parcost.engine.study import SpecStudy
from parcost.numeric import any_of
from parcost.records import frozen


@frozen(eq=False)
class WrittenAttribute:
    """An attribute that the study's file sets to another value than its default."""

    block: Any
    name: str
    needs: Sequence[str]
    followers: Sequence[tuple[Any, str]]  # attributes that have its value by default

    @property
    def readers(self) -> Sequence[tuple[Any, str]]:
        """The attributes with their blocks, of which at least one must be read."""
        return [(self.block, self.name), *self.followers]


@contextmanager
def record(study: SpecStudy) -> Iterator[SpecStudy]:
    """Yield *study* with blocks that record reads of its attributes that may have no effect.

    Reads are recorded in one thread at a time.
    """
    names: dict[int, tuple[Any, type, set[str]]] = {}
    with study.recording:
        for one in study.query(written_attributes):
            for block, name in one.readers:
                names.setdefault(id(block), (block, type(block), set()))[2].add(name)
        if not names:
            yield study
            return
        reads = Reads()
        token = READS.set(reads)
        try:
            for block, schema, recorded in names.values():
                _set_class(block, _recorder_class(schema, frozenset(recorded)))
            yield evolve(study, reads=reads)
        finally:
            READS.reset(token)
            for block, schema, _ in names.values():
                _set_class(block, schema)


def unread_checks(
    study: SpecStudy, failed: Sequence[Check], details: Callable[[], object]
) -> Iterator[Check]:
    """Yield a warning for the attributes that no plugin has read while *study* was evaluated.

    *failed* are warnings of rules: attributes that they name are not reported again. *details*
    computes the detailed figures; it is called if an attribute is unread without them.
    """
    reported = {check.subject for check in failed}
    if not _unread_attributes(study, reported):
        return
    details()
    found: dict[tuple[int, str], list[WrittenAttribute]] = {}
    for one in _unread_attributes(study, reported):
        found.setdefault((id(one.block), one.needs[0]), []).append(one)
    for unread in found.values():
        paths = [_path(one.block, one.name) for one in unread]
        needs = dict.fromkeys(need for one in unread for need in one.needs)
        yield Check(
            id="no-effect",
            holds=False,
            subject=paths[0],
            message=f"`{'`, `'.join(paths)}` {'has' if len(paths) == 1 else 'have'} no effect",
            inputs={"needs": " and ".join(needs)},
            help="it needs {needs}",
            severity="warning",
        )


def _unread_attributes(study: SpecStudy, reported: Container[str]) -> list[WrittenAttribute]:
    if study.reads is None:
        return []
    read = study.reads.axes
    return [
        one
        for one in study.query(written_attributes)
        if _path(one.block, one.name) not in reported
        and not any(_path(*reader) in read for reader in one.readers)
    ]


def written_attributes(study: Study) -> list[WrittenAttribute]:
    """Return the attributes in the study's own file that need another attribute (``used_with``)."""
    blocks = list(_blocks_in_use(study))
    written: list[tuple[Any, str, Sequence[str]]] = []
    for block in blocks:
        origins = study.origins.get(id(block), {})
        for name, needs in block_type(type(block)).needs.items():
            if _is_given(origins.get(name)) and _differs_from_default(study, block, name):
                written.append((block, name, needs))
    users = _users(study, blocks) if written else {}
    return [
        WrittenAttribute(block, name, needs, list(_followers(users, block, name)))
        for block, name, needs in written
    ]


def _path(block: object, name: str) -> str:
    return f"{block_name(block)}.{name}"


def _users(study: Study, blocks: Iterable[Any]) -> Mapping[str, Sequence[tuple[Any, str]]]:
    """Return the attributes of *blocks* whose defaults refer to a name, for each name."""
    found: dict[str, list[tuple[Any, str]]] = {}
    for block in blocks:
        origins = study.origins.get(id(block), {})
        for attribute, names in _default_names(block.__class__):
            if attribute in origins and origins[attribute].how == "default":
                for name in names:
                    found.setdefault(name, []).append((block, attribute))
    return found


def _followers(
    users: Mapping[str, Sequence[tuple[Any, str]]], block: object, name: str
) -> Iterator[tuple[Any, str]]:
    """Yield the attributes whose default refers to the attribute *name* of *block*."""
    yield from users.get(f"{block_type(type(block)).kind}.{name}", ())
    yield from (user for user in users.get(name, ()) if user[0] is block)


@cache
def _default_names(schema: type) -> Sequence[tuple[str, frozenset[str]]]:
    """Return the attributes of *schema* whose defaults are expressions, with the names in them."""
    return [
        (attribute, frozenset(NAMES.findall(default)))
        for attribute, default in block_type(schema).defaults.items()
        if plain_default(schema, attribute) is None
    ]


@pure_function
def _target_kinds(*schemas: type) -> frozenset[str]:
    """Return the kinds of blocks that blocks of other kinds refer to."""
    fields = [field for schema in schemas for field in block_type(schema).fields.values()]
    return frozenset(field.target for field in fields)


def _blocks_in_use(study: Study) -> Iterable[Any]:
    """Return the blocks of a study; blocks that are only definitions are included if another block
    refers to them.
    """
    schemas = [type_.schema for type_ in study.plugins.blocks.values()]
    targets = study.query(_target_kinds, *schemas)
    found: dict[int, Any] = {}
    left = [
        block
        for blocks in study.blocks.values()
        for block in blocks
        if block_type(type(block)).kind not in targets
    ]
    while left:
        block = left.pop()
        if id(block) not in found:
            found[id(block)] = block
            held = map(vars(block).get, _references(block.__class__))
            left += [one for one in held if hasattr(type(one), "__block__")]
    return found.values()


@cache
def _references(schema: type) -> Sequence[str]:
    """Return the attributes that hold a block of another kind."""
    fields = block_type(schema).fields.items()
    return [name for name, field in fields if field.kind == "reference"]


def _is_given(origin: Origin | None) -> bool:
    """Return whether the study's file sets a value without provenance."""
    return origin is not None and origin.how == "given" and not origin.kind


def _differs_from_default(study: Study, block: object, name: str) -> bool:
    return any_of(vars(block)[name] != _default(study, block, name))


def _default(study: Study, block: object, name: str) -> Any:
    """Return the default of an attribute: a value, or the path of another attribute."""
    type_ = block_type(type(block))
    found = type_.defaults.get(name)
    if not isinstance(found, str) or type_.fields[name].kind != "quantity":
        return found
    kind, *path = found.split(".")
    if not path:  # another attribute of the block
        return vars(block).get(kind)
    every = (one for blocks in study.blocks.values() for one in blocks)
    value = next((one for one in every if block_type(type(one)).kind == kind), None)
    for step in path:
        value = None if value is None else vars(value).get(step)
    return value


class _RecordedAttribute:
    """An attribute of a block that records that it is read."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, block: Any, owner: type) -> Any:
        reads = READS.get()
        if reads is not None:
            reads.record(_path(block, self.name), value=True)
        return vars(block)[self.name]

    def __set__(self, block: Any, value: Any) -> None:
        raise AttributeError(f"`{self.name}` cannot be set")


@cache
def _recorder_class(schema: type, names: frozenset[str]) -> type:
    """Return the class of blocks whose attributes *names* record that they are read."""
    return type(schema.__name__, (schema,), {name: _RecordedAttribute(name) for name in names})


def _set_class(block: object, schema: type) -> None:
    object.__setattr__(block, "__class__", schema)
