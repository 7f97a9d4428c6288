"""Which plugins a run has, in words that another process understands."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from parcost.plugins import Plugins


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


@frozen
class Picked:
    """The installed plugins *without* some, by name, and those in *files*, by path."""

    without: tuple[str, ...] = field(default=(), converter=_in_order)
    files: tuple[str, ...] = field(default=(), converter=_in_order)

    def load(self) -> Plugins:
        """Return the plugins.

        Raises:
            PluginError: Nothing installed has a name in *without*, or two share a name.
        """
        from parcost.plugins import load

        return load(without=self.without, files=self.files)


def name_of(path: str) -> str:
    """Return what a plugin in a file is called.

    >>> name_of("work/eager-1f1b.py")
    'eager_1f1b'
    """
    return Path(path).stem.replace("-", "_")


def module_of(path: str) -> object:
    """Return the module in a file, or in a folder that is a package, run anew.

    Raises:
        ImportError: There is none.
    """
    place = Path(path)
    package = place.is_dir()
    file = place / "__init__.py" if package else place
    folders = [str(place)] if package else None
    called = f"parcost_file_{name_of(path)}"
    spec = spec_from_file_location(called, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"`{file}` is no file of Python")
    for known in [name for name in sys.modules if name == called or name.startswith(f"{called}.")]:
        del sys.modules[known]  # of an earlier run, which may have been another text
    module = sys.modules[called] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
