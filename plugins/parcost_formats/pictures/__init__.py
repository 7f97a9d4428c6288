"""Pictures of a step, of a pipeline over time, of collectives, and of many points.

Each module draws one subject, as data: a format draws it. Sections with a picture of their own,
such as the levers, have it in the plugin that makes them.
"""

PARTS = ("collectives", "memory", "pipeline", "points", "step")
