"""parcost predicts the time and memory of one step of distributed LLM training, by cause.

    >>> import parcost
    >>> callable(parcost.load)
    True

Names are imported when they are first used, so that ``parcost --help`` starts at once. The public
interface is in ``__init__.pyi``: each name with its module.
"""

import re
from importlib import import_module
from typing import Any

from parcost.version import __version__ as __version__

_IMPORT = re.compile(r"^from (parcost\.\S+) import (\w+) as", re.MULTILINE)
_STUB: bytes = __loader__.get_data(f"{__file__}i")
#: The public names, each with the module that defines it.
HOMES = {name: module for module, name in _IMPORT.findall(_STUB.decode())}

__all__ = sorted(HOMES)  # noqa: PLE0605


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module `parcost` has no attribute `{name}`")
    value = getattr(import_module(HOMES[name]), name)
    globals()[name] = value
    return value
