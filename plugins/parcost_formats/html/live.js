"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const page = crypto.randomUUID();
  const changes = new Map();  // attributes by path, as texts
  const entries = new Map();  // by the same path, what the text is imported from
  const named = (path) => $("inputs").querySelector(`[name="${CSS.escape(path)}"]`);
  const say = (text) => { $("status").textContent = text; };
  // The address of the page is its state: `#layout.tp=8&use=catalog.devices.b200`.
  const uses = () => [...new Set(entries.values())];
  const state = () => ({ page, set: Object.fromEntries(changes), use: uses() });
  const readAddress = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    const imported = given.getAll("use");
    given.delete("use");
    changes.clear();
    entries.clear();
    for (const [path, text] of given) {
      changes.set(path, text);
      const entry = imported.find((use) => use.endsWith(`.${text}`));
      if (entry) entries.set(path, entry);
    }
  };
  const writeAddress = () => {
    const now = new URLSearchParams([...changes]);
    for (const entry of uses()) now.append("use", entry);
    const hash = String(now);
    if (hash !== location.hash.slice(1)) history.pushState(null, "", hash ? `#${hash}` : location.pathname);
    $("link").href = location.href;
  };
  const post = (path, body, signal) => fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  const element = (name, text, style = "") =>
    Object.assign(document.createElement(name), { textContent: text, className: style });
  const showProblems = (diagnostics = [], faults = []) => {
    const list = document.createElement("ul");
    for (const { message, remarks = [], notes = [], help, paths = [], reported } of diagnostics) {
      if (reported) continue;  // the report has it
      const item = element("li", paths.length ? `${paths.join(", ")}: ${message}` : message, "bad");
      item.append(...[...remarks, ...notes, ...(help ? [help] : [])].map((text) => element("p", text)));
      list.append(item);
    }
    for (const fault of faults) list.append(element("li", fault, "bad"));
    $("problems").replaceChildren(...(list.children.length ? [list] : []));
  };
  const mark = (diagnostics = []) => {
    for (const field of $("inputs").querySelectorAll(".field")) {
      const input = field.querySelector("[name]");
      if (!input) continue;
      const about = diagnostics.filter(({ paths }) => (paths ?? []).includes(input.name));
      field.classList.toggle("changed", changes.has(input.name));
      field.classList.toggle("wrong", about.length > 0);
      input.setAttribute("aria-invalid", String(about.length > 0));
      field.querySelector("[data-problem]").textContent = about.map(({ message, help }) => help ? `${message}; ${help}` : message).join("; ");
      if (about.length) field.closest("details").open = true;
    }
    filter();
  };
  const showSummary = ({ text, style, figures }) => {
    $("summary").hidden = false;
    $("summary").className = style;
    $("summary").textContent = [text, ...figures].join(" · ");
  };
  const invalid = { text: "Invalid input; the report is of the last valid one.", style: "bad", figures: [] };
  const showForm = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = template.content, inputs = $("inputs"), active = document.activeElement;
    for (const details of fresh.querySelectorAll("details[data-group]")) {
      const before = inputs.querySelector(`details[data-group="${CSS.escape(details.dataset.group)}"]`);
      if (before) details.open = before.open;
    }
    const panel = fresh.querySelector("details.search"), before = inputs.querySelector("details.search");
    if (before && (searching || panel?.textContent === before.textContent)) panel?.replaceWith(before);
    const { name, id, value, dataset } = inputs.contains(active) ? active : {}, scroll = $("form").scrollTop;
    inputs.replaceChildren(fresh);
    filter();
    $("form").scrollTop = scroll;
    const again = name ? named(name) : id && $(id);
    if (dataset?.typed && again) Object.assign(again, { value }).dataset.typed = "yes";
    again?.focus?.({ preventScroll: true });
  };
  const showReport = (target, html) => {
    target.innerHTML = html;
    document.dispatchEvent(new Event("parcost:report"));
  };
  let current = null;
  const evaluate = async () => {
    current?.abort();
    const own = current = new AbortController();
    say("Evaluating ...");
    try {
      const response = await post("/evaluate", state(), own.signal);
      const answer = await response.json();
      if (own !== current) return;
      if (answer.form) showForm(answer.form);
      if (answer.report) showReport($("report"), answer.report);
      if (answer.summary || !answer.report) showSummary(answer.summary ?? invalid);
      if (answer.command) $("command").textContent = answer.command;
      $("report").classList.toggle("stale", !answer.report);
      showProblems(answer.diagnostics, answer.faults);
      mark(answer.diagnostics);
      const last = $("report").children.length ? "Invalid input; showing the last valid report." : "No report.";
      say(answer.report ? `Evaluated${answer.diagnostics.length ? ", with problems" : ""}.` : last);
    } catch (error) {
      if (error.name === "AbortError") return;
      $("report").classList.add("stale");
      say("The server does not answer. Does `parcost serve` still run?");
    }
  };
  const update = () => { writeAddress(); evaluate(); };
  const change = (input) => {
    const text = input.value.trim(), path = input.name;
    delete input.dataset.typed;
    const same = changes.has(path) ? text === changes.get(path) : !text || text === input.dataset.value;
    if (input.validity.badInput || same) return;
    const entry = input.selectedOptions?.[0]?.dataset.entry;
    if (text) changes.set(path, text); else changes.delete(path);
    if (text && entry) entries.set(path, entry); else entries.delete(path);
    update();
  };
  // Without a text: what the file sets, what was changed and what is wrong. With one: all that matches.
  const filter = () => {
    const text = $("filter").value.trim().toLowerCase(), every = $("every").checked;
    const fields = $("inputs").querySelectorAll("[data-group] .field");
    for (const field of fields) {
      const kept = ["own", "changed", "wrong"].some((name) => field.classList.contains(name));
      field.hidden = text ? !field.dataset.find.toLowerCase().includes(text) : !(every || kept);
    }
    for (const details of $("inputs").querySelectorAll("[data-group]")) {
      details.hidden = !details.querySelector(".field:not([hidden])");
      if (text && !details.hidden) details.open = true;
    }
    for (const part of $("inputs").querySelectorAll("[data-part]")) {
      part.hidden = !part.querySelector("[data-group]:not([hidden])");
    }
    $("count").textContent = fields.length ? `${fields.length} attributes` : "attributes";
  };
  let searching = false;
  const apply = ({ values }) => {
    for (const [path, text] of Object.entries(values)) { changes.set(path, text); entries.delete(path); }
    update();
  };
  const showFound = (answer) => {
    showProblems(answer.diagnostics);
    $("progress").textContent = answer.report ? "The search has ended. Choose a layout to apply it." : "The search found nothing.";
    if (!answer.report) return;
    showReport($("found"), answer.report);
    const table = [...$("found").querySelectorAll("table")].find(({ tBodies: [body] }) => body.rows.length === answer.layouts.length);
    for (const [place, layout] of answer.layouts.entries()) {
      const row = table?.tBodies[0].rows[place];
      const button = Object.assign(element("button", "Apply"), { type: "button", title: `${layout.step}, ${layout.memory}` });
      (row?.insertCell() ?? $("progress")).append(button);
      (row ?? button).addEventListener("click", () => apply(layout));
      row?.classList.add("layout");
    }
  };
  const search = async () => {
    const axes = [...$("inputs").querySelectorAll("[data-axis]:checked")].map((box) => box.dataset.axis);
    const body = { ...state(), axes, objective: $("objective").value, budget_seconds: $("budget").valueAsNumber || null };
    $("search").hidden = false;
    $("start").disabled = searching = true;
    $("stop").disabled = false;
    try {
      const response = await post("/search", body);
      if (!response.ok) { showFound(await response.json()); return; }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const [, kind, data] of events.map((text) => text.match(/^event: (\w+)\ndata: (.*)$/s)).filter(Boolean)) {
          if (kind === "progress") $("progress").textContent = JSON.parse(data); else showFound(JSON.parse(data));
        }
      }
    } catch { $("progress").textContent = "The search was cut off."; }
    finally { $("start").disabled = searching = false; $("stop").disabled = true; }
  };
  const download = async () => {
    const { name, text, diagnostics } = await (await post("/spec", state())).json();
    if (!text) { showProblems(diagnostics); return; }
    const link = element("a", ""), href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    Object.assign(link, { href, download: name }).click();
    URL.revokeObjectURL(href);
  };
  let timer = 0;
  $("form").addEventListener("submit", (event) => event.preventDefault());
  $("form").addEventListener("input", ({ target }) => {
    clearTimeout(timer);
    if (target.id === "filter" || target.id === "every") filter();
    else if (target.name) target.dataset.typed = "yes";
    if (target.name) timer = setTimeout(change, target.tagName === "SELECT" ? 0 : 400, target);
  });
  $("form").addEventListener("change", ({ target }) => {
    clearTimeout(timer);
    if (target.name) change(target);
  });
  $("form").addEventListener("click", ({ target }) => {
    const path = target.dataset.undo;
    if (path) { changes.delete(path); entries.delete(path); update(); }
    else if (target.id === "start") search();
    else if (target.id === "stop") post("/stop", { page });
  });
  $("reset").addEventListener("click", () => { changes.clear(); entries.clear(); update(); });
  $("download").addEventListener("click", download);
  addEventListener("popstate", () => { readAddress(); $("link").href = location.href; evaluate(); });
  readAddress();
  $("link").href = location.href;
  evaluate();
})();
