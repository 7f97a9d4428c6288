"""What communication takes from the compute that it hides under."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Real
from parcost.numeric import maximum, ratio
from parcost_plugins.vocabulary.hardware import Cluster
from parcost_plugins.vocabulary.training import Overlap

if TYPE_CHECKING:
    from parcost import Study


def multiprocessors_taken(study: Study) -> Real:
    """Return the multiprocessors that a collective runs on while compute has the others.

    That is up to the library that runs on a device, unless the study says otherwise.
    """
    said = study[Overlap].multiprocessors
    return study[Cluster].device.collective_multiprocessors if said is None else said


def slowdown(study: Study) -> Real:
    """Return what one second of hidden traffic adds to the compute above it.

    That is infinite where traffic takes every multiprocessor, which a rule rejects.
    """
    taken, of = multiprocessors_taken(study), study[Cluster].device.multiprocessors
    return ratio(taken, maximum(of - taken, 0.0))
