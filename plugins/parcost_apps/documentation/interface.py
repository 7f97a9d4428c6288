"""The reference of the Python interface, generated from the docstrings of ``parcost.__all__``.

``python -m parcost_apps.documentation.interface`` prints it. With ``docs/api.md`` it rewrites the
file. With a file and a package it writes the functions of the package.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import parcost
from parcost.contract.fields import Record
from parcost.language.units import ONE, Dimension

HEAD = """# The Python interface

<!-- made by `python -m parcost_apps.documentation.interface docs/api.md` -->

These names are imported from `parcost`. What starts with an underscore, and every module below
`parcost`, may change in any release.

```python
import parcost

(report,) = parcost.evaluate("specs/examples/minimal.par")
report.result.figure("step_time")  # in seconds
```

`parcost.version.__version__` is the version. [Writing a plugin](plugins.md) shows the rest in use.
"""

#: The names that most plugins need.
CORE_SET = (
    *("hookimpl", "Study", "Outcome", "Real"),
    *("block", "quantity", "integer", "fraction", "switch", "word", "reference"),
    *("ONE", "SECONDS", "BYTES", "RATE"),
    *("formula", "Formula", "Sheet", "record"),
    *("Work", "Once", "Edge", "Memory", "Operator", "ParameterGroup"),
    *("Check", "Figure", "Section"),
    *("Collective", "ClosedForm", "Group", "Link"),
    *("Schedule", "Op", "PipelineShape"),
    "Axis",
)

#: Parts of the reference, by the modules that define them.
SECTIONS: Sequence[tuple[str, Sequence[str]]] = (
    (
        "Evaluating specs",
        (
            "engine.session",
            "engine.scenario",
            "report.report",
            "report.plots",
            "report.result",
            "contract.outcome",
            "language.diagnostics",
            "language.errors",
        ),
    ),
    ("Searching layouts", ("search.layout_search", "search.result")),
    ("Declaring blocks and attributes", ("contract.schema",)),
    (
        "Hooks: queries to plugins and their results",
        (
            "contract.hookspecs",
            "contract.study",
            "contract.queries",
            "contract.groups",
            "contract.pipelines",
            "contract.terms",
            "contract.counts",
            "contract.checks",
            "contract.figures",
            "contract.charts",
            "contract.searches",
            "contract.offers",
            "contract.traces",
            "contract.importers",
            "contract.settings",
            "contract.formulas",
            "contract.sheet",
            "records",
        ),
    ),
    ("Replaying a schedule", ("engine.replay",)),
    ("Units and types", ("language.units", "language.numbers", "numeric")),
)
_ROLE = re.compile(r":(?:meth|class|func|attr|mod):`~?\.?([^`]+)`")


def api_reference() -> str:
    """Return the page of the Python interface, in Markdown."""
    parts = [HEAD, *_core_set()]
    for title, modules in SECTIONS:
        parts.append(f"## {title}\n")
        for module in modules:
            homes = parcost.HOMES.items()
            names = sorted((n for n, home in homes if home == f"parcost.{module}"), key=str.lower)
            parts += [_entry(name, getattr(parcost, name)) for name in names]
    return "\n".join(parts)


def _core_set() -> Iterator[str]:
    """Yield the table of the most important names."""
    yield "## The core set\n"
    yield f"Most plugins need only these {len(CORE_SET)} names.\n"
    yield from ("| name | meaning |", "| :-- | :-- |")
    for name in CORE_SET:
        first = _first_paragraph(_description(name, getattr(parcost, name)))
        yield f"| `{name}` | {first} |"
    yield ""


def _first_paragraph(lines: Iterator[str]) -> str:
    """Return the first paragraph of a description, after the call."""
    text = "\n".join(lines).removeprefix("```text\n")
    text = text.partition("```\n")[2] if "```\n" in text else text
    return " ".join(text.strip().partition("\n\n")[0].split()).replace("|", "\\|")


def package_reference(package: str) -> str:
    """Return a page with the public functions of the modules of a package, in Markdown."""
    parts = [
        f"# The functions of `{package}`\n",
        f"<!-- made by `python -m parcost_apps.documentation.interface FILE {package}` -->\n",
    ]
    for found in pkgutil.iter_modules(import_module(package).__path__):
        module = import_module(f"{package}.{found.name}")
        functions = {
            name: value
            for name, value in vars(module).items()
            if inspect.isfunction(value)
            and value.__module__ == module.__name__
            and not name.startswith("_")
        }
        if functions:
            title = " ".join(_markdown(module.__doc__).partition("\n\n")[0].split())
            parts += [f"## `{found.name}`\n", f"{title}\n"]
            parts += [_entry(name, value) for name, value in functions.items()]
    return "\n".join(parts)


def _entry(name: str, value: Any) -> str:
    return "\n".join([f"### `{name}`", "", *_description(name, value)])


def _description(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one name: its call, its docstring, its attributes and methods."""
    if isinstance(value, Dimension):
        yield from (f"Dimension of {f'values in `{value}`' if value != ONE else 'numbers'}.", "")
        return
    if not callable(value) or getattr(value, "__origin__", None) is not None:
        yield from (f"`{name} = {_plain(value)}`", "")
        return
    if call := _call(value):
        yield from ("```text", f"{name}{call}", "```", "")
    yield from (_markdown(inspect.getdoc(value)), "")
    if inspect.isclass(value):
        yield from _members(value)


def _members(cls: type) -> Iterator[str]:
    """Yield the table of public methods and properties of a class, in source order."""
    rows = []
    for owner in reversed(cls.__mro__):
        if not owner.__module__.startswith("parcost"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or (name == "problem" and issubclass(owner, Record)):
                continue  # which the guide explains
            function = getattr(member, "__func__", member)  # of a class method
            is_property = isinstance(function, (property, cached_property))
            if not (is_property or inspect.isfunction(function)):
                continue
            cached = isinstance(function, cached_property)
            doc = inspect.getdoc(function.func if cached else function)
            shown = name if is_property else f"{name}{_call(function, method=True)}"
            rows.append((shown, " ".join(_markdown(doc).partition("\n\n")[0].split())))
    if rows:
        yield from ("| member | meaning |", "| :-- | :-- |")
        for shown, doc in rows:
            cells = (cell.replace("|", "\\|") for cell in (f"`{shown}`", doc))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _call(value: Any, *, method: bool = False) -> str:
    """Return the parameters of a call as a user would write them; "" without parameters."""
    if getattr(value, "_is_protocol", False):
        return ""  # a plugin writes a class of its own
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    hidden = {
        field.alias for field in getattr(value, "__attrs_attrs__", ()) if field.name.startswith("_")
    }
    parameters = [
        p.replace(annotation=_annotation(p.annotation), default=_default(p))
        for p in signature.parameters.values()
        if p.name not in hidden and not (method and p.name in ("self", "cls"))
    ]
    returned = _annotation(signature.return_annotation)
    if inspect.isclass(value):
        returned = inspect.Signature.empty
    made = signature.replace(parameters=parameters, return_annotation=returned)
    return str(made)


class _Verbatim:
    """Text whose ``repr`` has no quotation marks, for signatures."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _annotation(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    return _Verbatim(getattr(annotation, "__forward_arg__", None) or _plain(annotation))


def _default(parameter: inspect.Parameter) -> Any:
    """Return a default value whose text is the same in every process and version of Python."""
    default = parameter.default
    if default is inspect.Parameter.empty:
        return default
    shown = repr(default)
    if shown == "NOTHING" or shown.startswith("<") or "mappingproxy" in shown:
        shown = str(default) if isinstance(default, str) else "..."
    return _Verbatim(shown)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else repr(value).replace("typing.", "")


def _markdown(doc: str | None) -> str:
    """Return a docstring in Markdown: names in single back quotes, examples as code."""
    blocks = []
    for block in (doc or "").strip().split("\n\n"):
        if block.startswith(">>>"):
            blocks.append(f"```text\n{block}\n```")
        elif block.startswith("Raises:"):
            _, *lines = block.splitlines()
            raised = " ".join(line.strip() for line in lines)
            blocks.append(f"Raises {raised}")
        else:
            blocks.append(_ROLE.sub(r"`\1`", block).replace("``", "`"))
    return "\n\n".join(blocks)


def main(arguments: list[str]) -> None:
    """Print the page, or write it into the named file; with a package, the page of that package."""
    page = package_reference(arguments[1]) if len(arguments) > 1 else api_reference()
    if not arguments:
        sys.stdout.write(page)
        return
    Path(arguments[0]).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
