"""A report: all results of an evaluated scenario.

A scenario without sweeps has one result. A sweep over plain quantities is one result whose numbers
are arrays. A sweep over a structural value (a schedule, the number of stages, a device) has one
result for each value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.language.diagnostics import Diagnostic
from parcost.language.numbers import quantity
from parcost.records import record
from parcost.report.charts import report_charts
from parcost.report.figures import missing_names
from parcost.report.plots import Plot, plot
from parcost.report.result import Result, headline, is_good, meets_claims, runnable
from parcost.report.rows import data_frame, html_table, rows

if TYPE_CHECKING:
    from parcost.binding.allowances import Suppression


@record(kw_only=True, eq=False, repr=False)
class Report:
    """The results of one scenario. *path* is the file as the user named it.

    *units* are the base units of the swept values, by axis name; "" for plain numbers.
    """

    name: str
    path: str
    axes: Sequence[tuple[str, Sequence[Any]]]
    results: Sequence[Result]
    units: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Return the name, the file and the headline, in one line."""
        axes = " x ".join(f"{len(values)} {name}" for name, values in self.axes)
        found = f"sweep of {axes}" if axes else "; ".join(map(headline, self.results))
        return f"<Report `{self.name}` of `{self.path}`: {found}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: the figures of every result."""
        rows = [
            (figure.title, quantity(figure.value, figure.unit))
            for result in self.results
            for _, figure in result.figures
            if not figure.detail
        ]
        return html_table(f"{self.name} of {self.path}", rows)

    @property
    def result(self) -> Result:
        """The only result of a scenario without structural sweeps.

        Raises:
            ValueError: A sweep has several.
        """
        if len(self.results) != 1:
            swept = " and ".join(f"`{name}`" for name, _ in self.axes)
            raise ValueError(
                f"`{self.name}` sweeps {swept} and has {len(self.results)} results: use "
                "`report.results`, `report.rows()` or `report.to_pandas()`"
            )
        return self.results[0]

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """Every diagnostic of every result."""
        found = [d for result in self.results for d in result.diagnostics]
        return list({id(d): d for d in found}.values())  # points of a sweep share some

    @property
    def suppressions(self) -> Sequence[Suppression]:
        """Every warning that the spec switches off, each listed once."""
        found = [one for result in self.results for one in result.suppressions]
        return list({id(one.diagnostic): one for one in found}.values())

    @property
    def exit_code(self) -> int:
        """0 good; 1 a rule or an expectation failed or nothing fits; 3 a plugin failed.

        A sweep is good if one of its points is valid, and every claim holds at all valid points.
        """
        if any(result.faults for result in self.results):
            return 3
        if not self.axes:
            return int(not all(map(is_good, self.results)))
        runs = any(bool(runnable(result).any()) for result in self.results)
        return int(not (runs and all(map(meets_claims, self.results))))

    def plot(self, name: str = "") -> Plot:
        """Return the picture called *name*, such as ``memory``; without a name all of them.

        A notebook shows it, and :meth:`Plot.save` writes it to a file.

        Raises:
            KeyError: There is no picture of that name.
        """
        charts = report_charts(self.axes, self.results, self.units)
        return plot(self.path, self.name, charts, name, self.results[0].study.plugins)

    def to_pandas(self, figures: Sequence[str] = ()) -> Any:
        """Return :meth:`rows` as a ``pandas.DataFrame``, a row for each point.

        Raises:
            ImportError: pandas is not installed.
            KeyError: No figure has that name.
        """
        return data_frame(self.rows(figures))

    def rows(self, figures: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
        """Return one mapping per point: axis values, figures, verdict and reason.

        ``verdict`` is a text, ``feasible`` is true for a valid point, ``reason`` explains an
        invalid one. Figures of an invalid point are None. *figures* are the names to return; by
        default all figures except details.

        Raises:
            KeyError: No figure has that name.
        """
        for message in missing_names(self.results, figures).values():
            raise KeyError(message)
        return rows(self.axes, self.results, figures)
