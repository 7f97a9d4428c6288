"""Many specs: what can be evaluated is, and what cannot is kept.

A batch never stops at a bad file. Each file gives its reports, or one
:class:`Rejected` that says why it has none.

There are two ways through. :func:`evaluate` and :func:`scenarios` yield live objects, for
whoever looks into them. ``parcost eval`` takes the other: a file becomes entries of plain
data (:mod:`~parcost.contract.entries`), so that it does not matter whether they were made
here, in another process, on another machine or by an earlier run, and every format writes
the same bytes. The modules, in the order in which a file meets them:

    specs      which files there are
    shards     which of them are ours
    keys       what an answer depends on
    cache      answers of earlier runs
    run        the order of things: windows, chunks, workers that die
    executors  where work is done
    work       from a file to its entries
    entry      what formats read
"""

from parcost.batch.files import Spec, specs
from parcost.batch.rejections import BAD_INPUT, FAULT, Rejected, attempt, internal
from parcost.batch.scenarios import evaluate, only_defines, scenarios

__all__ = [
    "BAD_INPUT",
    "FAULT",
    "Rejected",
    "Spec",
    "attempt",
    "evaluate",
    "internal",
    "only_defines",
    "scenarios",
    "specs",
]
