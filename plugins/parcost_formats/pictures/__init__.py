"""Pictures of a step, of a pipeline over time, of collectives, and of many points.

Each module creates the charts of one subject as data, which formats draw. Charts of sections, such
as the levers, are in the plugins of the sections.
"""

PARTS = ("collectives", "memory", "pipeline", "points", "step")
