"""The messages of Chakra execution traces, made at run time from a table of their fields.

The table has numbers and types of fields of ``et_def.proto``, package ``ChakraProtoMsg``. That is
the schema 0.0.4 of MLCommons Chakra, under the MIT licence. The table has only the fields that a
trace of a step uses; readers treat others as missing. Generated code would depend on one major
version of protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from parcost import MissingExtraError

VERSION = "0.0.4"
_PACKAGE = "ChakraProtoMsg"
_FILE = "parcost/chakra/et_def.proto"  # a name of our own: the pool may know another

#: Kinds of nodes, and of collectives by our names.
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
COLLECTIVES: Mapping[str, int] = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}

#: Fields by message: name, number, type, whether there are several. Enums travel as int32.
_FIELDS: Mapping[str, tuple[tuple[str, int, str, bool], ...]] = {
    "AttributeProto": (
        ("name", 1, "string", False),
        ("doc_string", 2, "string", False),
        ("double_val", 3, "double", False),
        ("int32_val", 7, "int32", False),
        ("int64_val", 9, "int64", False),
        ("uint64_val", 13, "uint64", False),
        ("bool_val", 27, "bool", False),
        ("string_val", 29, "string", False),
    ),
    "GlobalMetadata": (
        ("version", 1, "string", False),
        ("attr", 2, "AttributeProto", True),
    ),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "int32", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("attr", 10, "AttributeProto", True),
    ),
}
_ONE_OF = "value"  # of an attribute: the fields from here on
_FIRST_VALUE = "double_val"


class ChakraMessages(NamedTuple):
    """The classes of the messages."""

    attribute: Any
    metadata: Any
    node: Any


@cache
def messages() -> ChakraMessages:
    """Return the classes of the messages.

    Raises:
        MissingExtraError: The library protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        message = "Chakra traces need protobuf, which is not installed"
        raise MissingExtraError(
            message, "chakra", "`--format perfetto` needs no further package"
        ) from None
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto3")
    types = descriptor_pb2.FieldDescriptorProto
    for message_name, fields in _FIELDS.items():
        made = file.message_type.add(name=message_name)
        values = False
        for name, number, type_, several in fields:
            label = types.LABEL_REPEATED if several else types.LABEL_OPTIONAL
            entry = made.field.add(name=name, number=number, label=label)
            if type_ in _FIELDS:
                entry.type, entry.type_name = types.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
            else:
                entry.type = getattr(types, f"TYPE_{type_.upper()}")
            values = values or name == _FIRST_VALUE
            if values:
                if not made.oneof_decl:
                    made.oneof_decl.add(name=_ONE_OF)
                entry.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("AttributeProto", "GlobalMetadata", "Node")
    )
    return ChakraMessages(*found)
