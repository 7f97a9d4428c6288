"""The slowdown of compute by hidden communication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Real
from parcost.numeric import maximum, ratio
from parcost_plugins.vocabulary.hardware import Cluster
from parcost_plugins.vocabulary.training import Overlap

if TYPE_CHECKING:
    from parcost import Study


def multiprocessors_taken(study: Study) -> Real:
    """Return the number of multiprocessors that a collective occupies during compute.

    The study may set the number; otherwise it is the device's.
    """
    said = study[Overlap].multiprocessors
    return study[Cluster].device.collective_multiprocessors if said is None else said


def slowdown(study: Study) -> Real:
    """Return the seconds added to compute per second of hidden communication.

    It is infinite if communication occupies all multiprocessors, which a rule rejects.
    """
    taken, of = multiprocessors_taken(study), study[Cluster].device.multiprocessors
    return ratio(taken, maximum(of - taken, 0.0))
