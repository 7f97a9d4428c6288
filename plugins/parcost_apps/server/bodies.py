"""Validation of the bodies of requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from sys import float_info
from typing import Any

from attrs import field, frozen
from starlette.requests import ClientDisconnect, Request

from parcost.language.diagnostics import did_you_mean, quote
from parcost.language.errors import ParcostError

LARGEST = 1_000_000  # bytes of a body
_READING_SECONDS = 10.0
_MOST_VALUES = 1000
LONGEST_SEARCH_SECONDS = 3600.0  # by the page; the command line has no limit
_MOST_LISTED = 1000
_MOST_QUOTED = 60  # characters of a key
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_WORD = re.compile(r"\w{1,100}")

PAGE_KEYS = ("page",)
CHANGE_KEYS = (*PAGE_KEYS, "set", "use")
SEARCH_KEYS = (*CHANGE_KEYS, "axes", "objective", "budget_seconds")


class BodyError(ParcostError):
    """A request is invalid; it is answered with HTTP *status*."""

    def __init__(self, status: int, id: str, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.status, self.id, self.help = status, id, help


@frozen(kw_only=True)
class FormChange:
    """The values that the user set on a page, by path, and the catalogue entries that they name."""

    values: Mapping[str, str] = field(factory=dict)
    uses: tuple[str, ...] = ()


@frozen(kw_only=True)
class SearchOrder:
    """A search that a page starts; an empty field is taken from the spec."""

    change: FormChange
    axes: tuple[str, ...] = ()
    objective: str = ""
    budget_seconds: float | None = None


async def read_body(request: Request, keys: Sequence[str]) -> Mapping[str, Any]:
    """Parse the JSON object in the body of *request*; only *keys* are accepted.

    Raises:
        BodyError: The body is too large, comes too slowly, is not an object of JSON, or has other
            keys or a key twice.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise BodyError(415, "not-json", "the body of a request is `application/json`")
    length = request.headers.get("content-length", "0")
    too_large = BodyError(413, "too-large", f"a body has {LARGEST:,} bytes at most")
    if not (length.isascii() and length.isdecimal()) or len(length) > 18 or int(length) > LARGEST:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_READING_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > LARGEST:
                    raise too_large
    except TimeoutError:
        raise BodyError(408, "too-slow", "the body of the request did not arrive in time") from None
    except ClientDisconnect:
        raise BodyError(400, "not-json", "the request ended before its body was complete") from None
    try:
        found = json.loads(body, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise BodyError(400, "not-json", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise BodyError(400, "not-json", "the body is not an object")
    unknown = next((key for key in found if key not in keys), None)
    if unknown is not None:
        known = ", ".join(f"`{key}`" for key in keys)
        help = did_you_mean(unknown[:_MOST_QUOTED], keys) or f"this request may have {known}"
        message = f"the request has an unknown key {quote(unknown)}"
        raise BodyError(400, "unknown-key", message, help)
    return found


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; two values of one key are an error."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key in found if counts[key] > 1)
        raise BodyError(400, "duplicate-key", f"the request has the key {quote(twice)} twice")
    return found


def change_of(body: Mapping[str, Any]) -> FormChange:
    """Return the values that a body sets.

    Raises:
        BodyError: The body has no attributes with texts, or imports a name that is not a
            catalogue entry.
    """
    values, uses = body.get("set", {}), body.get("use", [])
    if not isinstance(values, dict) or len(values) > _MOST_VALUES:
        raise BodyError(400, "bad-request", f"`set` has up to {_MOST_VALUES:,} attributes")
    for path, value in values.items():
        if not (isinstance(value, str) and _PATH.fullmatch(path) and _is_unicode(value)):
            raise BodyError(400, "bad-request", "`set` has a text for each path of an attribute")
    return FormChange(values=values, uses=_names(uses, _PATH, "use"))


def search_order_of(body: Mapping[str, Any]) -> SearchOrder:
    """Return the search that a body requests.

    Raises:
        BodyError: The body is not a valid search.
    """
    budget, objective = body.get("budget_seconds"), body.get("objective", "")
    number = isinstance(budget, (int, float)) and not isinstance(budget, bool)
    if budget is not None and not (number and 0 < budget <= float_info.max):
        raise BodyError(400, "bad-request", "`budget_seconds` is a number above 0")
    if not isinstance(objective, str) or not (objective == "" or _WORD.fullmatch(objective)):
        raise BodyError(400, "bad-request", "`objective` is a name")
    return SearchOrder(
        change=change_of(body),
        axes=_names(body.get("axes", []), _PATH, "axes"),
        objective=objective,
        budget_seconds=None if budget is None else float(budget),
    )


def page_of(body: Mapping[str, Any]) -> str:
    """Return the identifier that a page has chosen for itself.

    Raises:
        BodyError: The identifier is not a word.
    """
    name = body.get("page", "")
    if not isinstance(name, str) or not (name == "" or _WORD.fullmatch(name.replace("-", ""))):
        raise BodyError(400, "bad-request", "`page` is a word")
    return name


def _is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate, which JSON can encode."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _names(items: Any, pattern: re.Pattern[str], name: str) -> tuple[str, ...]:
    if not isinstance(items, list) or len(items) > _MOST_LISTED:
        raise BodyError(400, "bad-request", f"`{name}` is a list of up to {_MOST_LISTED:,} names")
    if not all(isinstance(item, str) and pattern.fullmatch(item) for item in items):
        raise BodyError(400, "bad-request", f"`{name}` has names like `block.attribute`")
    return tuple(items)
