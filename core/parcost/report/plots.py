"""Pictures for notebooks, and for files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parcost.contract.entries import Entry
from parcost.contract.offers import Exporter, write_items
from parcost.contract.page import Paper
from parcost.language.diagnostics import did_you_mean
from parcost.language.json_encoding import encode
from parcost.records import record
from parcost.report.charts import chart_data
from parcost.system.whole_files import WholeFile

if TYPE_CHECKING:
    from parcost.contract.charts import Chart
    from parcost.plugins.discovery import Plugins


@record(kw_only=True, eq=False, repr=False)
class Plot:
    """Pictures for a notebook, or for a file written by :meth:`save`."""

    entry: Entry
    plugins: Plugins

    def __repr__(self) -> str:
        """Return the names of the pictures, in one line."""
        names = ", ".join(chart.name for chart in self.entry.charts())
        return f"<Plot of {names}>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:  # noqa: ARG002
        """Return the pictures in every format that a notebook shows."""
        shown = {"text/plain": repr(self)}
        for _, exporter in self.plugins.offers("exporters").values():
            if isinstance(exporter, Exporter) and exporter.media_type:
                shown[exporter.media_type] = "".join(exporter.write([self.entry], Paper()))
        return shown

    def save(self, path: str | Path) -> None:
        """Write the pictures in the format of the suffix of *path*.

        The file appears when it is complete.

        Raises:
            ValueError: No plugin has a drawing format of that name.
            OSError: The file cannot be written.
            PluginError: The plugin of the format fails.
        """
        target = Path(path)
        offered = self.plugins.offers("exporters")
        drawing = {name: one for name, one in offered.items() if one[1].reads == "charts"}
        if (name := target.suffix.removeprefix(".")) not in drawing:
            known = ", ".join(f".{name}" for name in sorted(drawing))
            raise ValueError(
                f"`{target.name}` has no suffix of a picture format; the formats are {known}"
            )
        with WholeFile(target) as file:
            write_items(*drawing[name], [self.entry], file, Paper())


def plot(path: str, name: str, charts: Iterable[Chart], picture: str, plugins: Any) -> Plot:
    """Return a plot of the chart called *picture*, or of all *charts* if it is "".

    *path* and *name* are the file and the title of the study.

    Raises:
        KeyError: No chart has that name.
    """
    drawn = list(charts)
    chosen = [chart_data(chart) for chart in drawn if chart.name == picture or not picture]
    if not chosen:
        known = list(dict.fromkeys(chart.name for chart in drawn))
        hint = did_you_mean(picture, known) or f"there are {', '.join(known) or 'none'}"
        raise KeyError(f"no picture is called `{picture}`; {hint}")
    text = encode({"page": [], "charts": chosen})
    return Plot(entry=Entry(path=path, name=name, part="charts", text=text), plugins=plugins)
