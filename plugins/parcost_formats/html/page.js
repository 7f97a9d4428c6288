"use strict";
(() => {
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();  // figures, and what lets go of their drawings
  const pause = () => new Promise((resolve) => setTimeout(resolve));

  const describe = (columns, row) => columns
    .filter(([, name]) => row[name] !== null && row[name] !== undefined && row[name] !== "")
    .map(([title, name]) => `${title}: ${row[name]}`).join("; ");

  const draw = async (figure) => {
    const { spec, columns, count, fields, legend } = JSON.parse(figure.querySelector("script").textContent);
    spec.data.values = Array.from({ length: count }, (_, n) => {
      const row = {};
      for (const [name, { values, at }] of Object.entries(fields)) row[name] = at ? values[at[n]] : values[n];
      row.description = describe(columns, row);
      return row;
    });
    const target = figure.querySelector(".drawing"), width = target.clientWidth || 600;
    const theme = themes[dark.matches ? "dark" : "light"];
    const look = {  // as wide as the figure: no label of a legend or an axis is cut where it has room
      ...theme,
      background: "transparent",
      axis: { ...theme.axis, labelLimit: Math.min(theme.axis.labelLimit, 0.4 * width) },
      legend: { ...theme.legend, columns: Math.max(1, Math.min(5, Math.floor(width / legend))), labelLimit: width - 34 },
    };
    const { finalize } = await vegaEmbed(target, spec, {
      mode: "vega-lite",
      ast: true,
      renderer: "svg",
      config: look,
      tooltip: { theme: dark.matches ? "dark" : "light" },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: figure.dataset.chart,
    });
    drawn.set(figure, finalize);
    figure.dataset.drawn = "yes";
    performance.mark(`drawn-${figure.id}`);
  };

  let latest = 0;
  const drawAll = async (anew) => {
    const own = ++latest;
    for (const [figure, finalize] of drawn) {
      if (anew || !figure.isConnected) { finalize(); drawn.delete(figure); }
    }
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      if (own !== latest) return;
      if (drawn.has(figure)) continue;
      try {
        await draw(figure);
      } catch (error) {
        if (!figure.isConnected) continue;
        figure.querySelector(".drawing").textContent = "The picture cannot be drawn.";
        console.error(error);
      }
      await pause();
    }
  };

  // Arrow keys go from mark to mark; what each shows is read aloud.
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const places = new WeakMap();
  document.addEventListener("keydown", (event) => {
    const figure = event.target;
    if (!(event.key in step) || !figure.matches?.("figure[data-chart]")) return;
    const marks = [...figure.querySelectorAll('.drawing .role-mark [role="graphics-symbol"][aria-label]')];
    if (!marks.length) return;
    event.preventDefault();
    const place = places.get(figure) ?? -1;
    const next = place < 0 && step[event.key] < 0 ? marks.length - 1
      : (place + step[event.key] + marks.length) % marks.length;
    places.set(figure, next);
    figure.querySelector(".reading").textContent = marks[next].getAttribute("aria-label");
  });

  dark.addEventListener("change", () => drawAll(true));
  document.addEventListener("parcost:report", () => drawAll(false));
  drawAll(false);
})();
