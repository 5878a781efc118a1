"use strict";
// The data: D.keys (what varies), D.metrics, D.runs (their values are numbers of those lists), D.classes.
const D = JSON.parse(document.getElementById("data").textContent), ABSENT = -1;
const $ = id => document.getElementById(id);
// Plotly reads some HTML in labels, so names are escaped for it as they are for the page.
const esc = s => String(s).replace(/[&<>"']/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}[c]));
const cut = (s, n) => s.length > n ? s.slice(0, n - 1) + "…" : s;
const fmt = v => v === null || v === undefined ? "–" : Number.isInteger(v) && Math.abs(v) >= 10 || v === 0 ? String(v)
  : Math.abs(v) < 1e-3 || Math.abs(v) >= 1e4 ? v.toExponential(2) : v.toFixed(3);
const label = (k, v) => v === ABSENT ? "–" : D.keys[k].values[v];
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = () => innerWidth < 700;
const mean = xs => xs.reduce((a, b) => a + b, 0) / xs.length;
const deviation = xs => xs.length < 2 ? null : Math.sqrt(xs.reduce((a, x) => a + (x - mean(xs)) ** 2, 0) / (xs.length - 1));
const sum = xs => xs.reduce((a, b) => a + b, 0);
const distinct = xs => [...new Set(xs)].sort((a, b) => a - b);
const settings = D.keys.map((_, k) => k).filter(k => !D.keys[k].repetition);
const repetitions = D.keys.map((_, k) => k).filter(k => D.keys[k].repetition);
const numeric = k => D.keys[k].numbers !== null;

const state = {metric: D.metric, filter: "", average: false, sort: "metric", down: true, chosen: 0, x: -1, y: -1, line: -1, held: {}};
const lower = m => D.metrics[m].lower;
const value = (r, m) => r.metrics[m];
const better = (a, b) => (lower(state.metric) ? -1 : 1) * (b - a);  // for sorting, best first

// The mean over class splits of the means over their seeds, its standard error, and how many runs are in it.
function summary(runs, m) {
  const split = new Map();
  for (const r of runs) { const v = value(r, m); if (v === null) continue;
    if (!split.has(r.split)) split.set(r.split, []); split.get(r.split).push(v); }
  const lists = [...split.values()], means = lists.map(mean), n = sum(lists.map(l => l.length));
  if (!n) return {mean: null, error: null, n: 0};
  const among = means.length > 1 ? means : lists[0], s = deviation(among);
  return {mean: mean(means), error: s === null ? null : s / Math.sqrt(among.length), n};
}

// "model.lam=0.1" must be that value; a word without "=" may be a part of any key, value or name.
function matches(r) {
  return state.filter.toLowerCase().split(/\s+/).filter(Boolean).every(word => {
    const at = word.indexOf("="), key = word.slice(0, at), wanted = word.slice(at + 1);
    return D.keys.some(({name}, k) => { const n = name.toLowerCase(), v = label(k, r.values[k]).toLowerCase();
      return at > 0 ? (n === key || n.endsWith("." + key)) && v === wanted : n.includes(word) || v.includes(word); });
  });
}
const visible = () => D.runs.filter(matches);

// The rows of the table: runs, or groups of runs that differ in nothing but repetitions.
function rows() {
  const groups = new Map();
  for (const r of visible()) { const id = state.average ? settings.map(k => r.values[k]).join() : r.number;
    if (!groups.has(id)) groups.set(id, []); groups.get(id).push(r); }
  return [...groups.values()].map(runs => ({runs, values: runs[0].values, metric: summary(runs, state.metric)}));
}
const withError = s => fmt(s.mean) + (s.error === null ? "" : " ± " + fmt(s.error));

function sorted(all) {
  const by = state.sort, sign = state.down ? -1 : 1;
  const of = row => by === "metric" ? row.metric.mean : by[0] === "m" ? summary(row.runs, Number(by.slice(1))).mean
    : row.values[Number(by.slice(1))] === ABSENT ? null : row.values[Number(by.slice(1))];
  const known = all.map(row => [of(row), row]);
  known.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : sign * (a - b));
  return known.map(([, row]) => row);
}

const mlflow = D.runs.some(r => r.page);
const shownKeys = () => [...settings, ...(state.average ? [] : repetitions)];
const shownMetrics = () => D.metrics.map((_, m) => m).filter(m => D.metrics[m].column && m !== state.metric);

function table() {
  const keys = shownKeys(), metrics = shownMetrics(), all = sorted(rows());
  const first = [["metric", D.metrics[state.metric].name, "n"], ...keys.map(k => ["k" + k, D.keys[k].name, numeric(k) ? "n" : ""])];
  const arrow = id => id !== state.sort ? "" : state.down ? " ▼" : " ▲";
  const heads = columns => columns.map(([id, name, kind]) =>
    `<th class="${kind}" aria-sort="${id === state.sort ? (state.down ? "descending" : "ascending") : "none"}"><button type="button" data-column="${id}">${esc(name)}${arrow(id)}</button></th>`).join("");
  $("runs").querySelector("thead").innerHTML = "<tr>" + heads(first) + (state.average ? '<th class="n">runs</th>' : "<th>run folder</th>" + (mlflow ? "<th>MLflow</th>" : ""))
    + heads(metrics.map(m => ["m" + m, D.metrics[m].name, "n"])) + "</tr>";
  $("runs").querySelector("tbody").innerHTML = all.map(row => { const r = row.runs[0];
    return `<tr data-run="${best(row.runs).number}" class="${row.runs.some(q => q.number === state.chosen) ? "on" : ""}">`
      + `<td class="n"><button type="button">${withError(row.metric)}</button></td>`
      + keys.map(k => `<td class="${numeric(k) ? "n" : ""}" title="${esc(label(k, r.values[k]))}">${esc(cut(label(k, r.values[k]), 36))}</td>`).join("")
      + (state.average ? `<td class="n">${row.runs.length}</td>`
        : `<td><a href="${esc(r.folder)}">${esc(cut(r.name, 30))}</a></td>` + (mlflow ? `<td>${r.page ? `<a href="${esc(r.page)}" title="${esc(r.pageNeeds)}">page</a>` : "–"}</td>` : ""))
      + metrics.map(m => `<td class="n">${withError(summary(row.runs, m))}</td>`).join("") + "</tr>"; }).join("");
  const n = visible().length;
  $("count").textContent = (state.average ? `${all.length} settings of ${n} runs.` : `${n} of ${D.runs.length} runs.`)
    + (state.average ? " ± is one standard error over the repetitions." : "");
}
const best = runs => [...runs].sort((a, b) => { const u = value(a, state.metric), v = value(b, state.metric);
  return u === null || v === null ? (u === null) - (v === null) : better(u, v); })[0];

function download() {
  // A spreadsheet would take such a text for a formula.
  const cell = v => { let t = String(v ?? ""); if (typeof v === "string" && /^(['\s]*[-=+@\uff0d\uff1d\uff0b\uff20][\s\S]*\S|'*[\t\r\n])/.test(t)) t = "'" + t; return /[",\n\r]/.test(t) ? `"${t.replace(/"/g, '""')}"` : t; };
  const metrics = [state.metric, ...D.metrics.map((_, m) => m).filter(m => m !== state.metric)];
  const lines = [[D.metrics[state.metric].name, ...D.keys.map(k => k.name), ...metrics.slice(1).map(m => D.metrics[m].name), "folder"]];
  for (const r of sorted(visible().map(q => ({runs: [q], values: q.values, metric: summary([q], state.metric)}))).map(row => row.runs[0]))
    lines.push([value(r, state.metric), ...D.keys.map((key, k) => { const v = r.values[k]; return v === ABSENT ? "" : key.numbers && key.numbers[v] !== null ? key.numbers[v] : key.values[v]; }),
      ...metrics.slice(1).map(m => value(r, m)), decodeURIComponent(r.folder)]);
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob(["\ufeff" + lines.map(l => l.map(cell).join(",")).join("\r\n") + "\r\n"], {type: "text/csv"}));
  a.download = "runs.csv"; a.click(); setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

// --- plots ---------------------------------------------------------------------------------------------------

const theme = () => dark.matches ? {ink: "#e6edf3", faint: "#9aa5b1", grid: "#333c46", weak: [70, 80, 92], strong: [108, 185, 234], low: "#14181d", high: "#6cb9ea", mark: "#ff9d5c"}
  : {ink: "#1b1f24", faint: "#57606a", grid: "#e3e7eb", weak: [205, 212, 219], strong: [0, 90, 150], low: "#ffffff", high: "#00558f", mark: "#d55e00"};
function plot(id, traces, layout) {
  const t = theme(), axis = {gridcolor: t.grid, linecolor: t.faint, zerolinecolor: t.grid, tickcolor: t.faint, automargin: true, fixedrange: narrow()};
  const full = {paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {family: "system-ui, sans-serif", size: narrow() ? 12 : 13, color: t.ink},
    margin: {l: 60, r: 16, t: narrow() ? 10 : 34, b: 50}, hoverlabel: {align: "left"}, modebar: {bgcolor: "rgba(0,0,0,0)", color: t.faint, activecolor: t.ink}, dragmode: narrow() ? false : "zoom", ...layout,
    xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis}};
  return Plotly.react($(id), traces, full, {displaylogo: false, responsive: false, displayModeBar: narrow() || id === "bars" ? false : "hover", modeBarButtons: [["toImage"], ...(id === "parallel" ? [] : [["zoom2d", "pan2d", "resetScale2d"]])]});
}
const empty = (id, note, words) => { Plotly.purge($(id)); $(id).innerHTML = ""; $(id).style.height = ""; $(note).textContent = words; };
const places = (values, k, n) => ({type: "linear", tickmode: "array", tickvals: values.map((_, i) => i), ticktext: values.map(v => esc(cut(label(k, v), n))), range: [-0.5, values.length - 0.5]});
const named = k => ({text: esc(D.keys[k].name), standoff: 10});
const listed = (ks, most = 8) => ks.slice(0, most).map(k => D.keys[k].name).join(", ") + (ks.length > most ? ` and ${ks.length - most} more` : "");

// The runs of the plot: whatever else varies within a cell is held at one value, which a selector shows.
function held(kx, second) {
  let runs = visible().filter(r => value(r, state.metric) !== null && r.values[kx] !== ABSENT && (second < 0 || r.values[second] !== ABSENT));
  const selectors = [], along = [], cell = r => r.values[kx] + "," + (second < 0 ? "" : r.values[second]);
  for (const k of settings.filter(k => k !== kx && k !== second)) {
    const values = distinct(runs.map(r => r.values[k]));
    if (values.length < 2) continue;
    const first = new Map();
    const several = runs.some(r => { const c = cell(r);
      if (!first.has(c)) first.set(c, r.values[k]); return first.get(c) !== r.values[k]; });
    if (!several) { along.push(k); continue; }
    // Unless it is chosen: the value that fills most cells, and of equals that of the best run.
    const filled = v => new Set(runs.filter(r => r.values[k] === v).map(cell)).size, top = best(runs).values[k];
    const pick = values.includes(state.held[k]) ? state.held[k] : values.reduce((a, v) => filled(v) > filled(a) ? v : a, top);
    runs = runs.filter(r => r.values[k] === pick);
    selectors.push([k, values, pick]);
  }
  return {runs, selectors, along};
}

function effect() {
  $("linebox").hidden = state.y >= 0;
  if (state.x < 0) { $("held").innerHTML = ""; empty("effect", "effectnote", ""); return; }
  const kx = state.x, map = state.y >= 0 && state.y !== kx, second = map ? state.y : state.line === kx ? -1 : state.line;
  const {runs, selectors, along} = held(kx, second);
  $("held").innerHTML = selectors.map(([k, values, pick]) => `<label>${esc(D.keys[k].name)} <select data-key="${k}">${values.map(v =>
    `<option value="${v}"${v === pick ? " selected" : ""}>${esc(cut(label(k, v), 40))}</option>`).join("")}</select></label>`).join("");
  if (!runs.length) { empty("effect", "effectnote", "No run has these settings; change the filter or a selector."); return; }
  const xs = distinct(runs.map(r => r.values[kx])), ys = second < 0 ? [ABSENT] : distinct(runs.map(r => r.values[second]));
  const cells = ys.map(y => xs.map(x => summary(runs.filter(r => r.values[kx] === x && (second < 0 || r.values[second] === y)), state.metric)));
  const name = D.metrics[state.metric].name, t = theme(), counts = distinct(cells.flat().map(c => c.n).filter(Boolean));
  const about = c => `${esc(name)} ${withError(c)}<br>${c.n} run${c.n === 1 ? "" : "s"}`;
  if (map) {
    const wide = $("effect").clientWidth, few = xs.length * ys.length <= 200 && wide / xs.length > 52;
    plot("effect", [{type: "heatmap", x: xs.map((_, i) => i), y: ys.map((_, i) => i), z: cells.map(l => l.map(c => c.mean)), xgap: 2, ygap: 2, colorscale: "Viridis", reversescale: lower(state.metric),
      text: cells.map(l => l.map(c => c.n ? fmt(c.mean) : "")), texttemplate: few ? "%{text}" : "", textfont: {size: narrow() ? 12 : 14}, hoverinfo: "text", hoverongaps: false,
      hovertext: cells.map((l, j) => l.map((c, i) => `${esc(D.keys[kx].name)} = ${esc(label(kx, xs[i]))}<br>${esc(D.keys[second].name)} = ${esc(label(second, ys[j]))}<br>${about(c)}`)),
      colorbar: {title: {text: esc(name), side: "right"}, thickness: 12, outlinewidth: 0}, showscale: !narrow()}],
      {height: Math.max(260, Math.min(700, 110 + 52 * ys.length)), xaxis: {...places(xs, kx, 14), title: named(kx), showgrid: false, zeroline: false}, yaxis: {...places(ys, second, narrow() ? 12 : 26), title: named(second), showgrid: false, zeroline: false}});
  } else {
    const numbers = D.keys[kx].numbers, plain = numbers && xs.every(v => numbers[v] !== null), at = xs.map((v, i) => plain ? numbers[v] : i);
    const log = plain && at[0] > 0 && at[at.length - 1] / at[0] >= 20, traces = [], dashes = ["solid", "dash", "dot", "dashdot"];
    ys.forEach((y, j) => {
      const known = cells[j].map((c, i) => [plain ? at[i] : i + (j - (ys.length - 1) / 2) * 0.06, c, i]).filter(([, c]) => c.n), colour = D.colours[dark.matches ? "dark" : "light"][j % D.colours.light.length];
      const bands = known.filter(([, c]) => c.error !== null), points = {x: known.map(p => p[0]), y: known.map(p => p[1].mean)}, words = second < 0 ? name : label(second, y);
      if (bands.length > 1 && numeric(kx)) traces.push({type: "scatter", mode: "lines", x: [...bands.map(p => p[0]), ...bands.map(p => p[0]).reverse()], y: [...bands.map(p => p[1].mean + p[1].error), ...bands.map(p => p[1].mean - p[1].error).reverse()],
        fill: "toself", fillcolor: colour, opacity: 0.18, line: {width: 0}, hoverinfo: "skip", showlegend: false, legendgroup: String(j)});
      traces.push({type: "scatter", mode: numeric(kx) ? "lines+markers" : "markers", ...points, name: esc(cut(words, 40)), legendgroup: String(j), line: {color: colour, width: 2, dash: dashes[Math.floor(j / D.colours.light.length) % 4]},
        marker: {size: 8, color: colour, symbol: j % 8}, error_y: {type: "data", array: known.map(p => p[1].error ?? 0), visible: bands.length > 0, thickness: 1.2, width: 3, color: colour}, hoverinfo: "text",
        hovertext: known.map(([, c, i]) => `${esc(D.keys[kx].name)} = ${esc(label(kx, xs[i]))}<br>${second < 0 ? "" : esc(D.keys[second].name + " = " + words) + "<br>"}${about(c)}`)});
    });
    const axis = plain ? {type: log ? "log" : "linear", tickmode: "array", tickvals: at, ticktext: xs.map(v => esc(label(kx, v)))} : places(xs, kx, 16);
    plot("effect", traces, {height: narrow() ? 360 : 420, showlegend: second >= 0, legend: narrow() ? {orientation: "h", y: -0.3} : {title: {text: second < 0 ? "" : esc(D.keys[second].name)}},
      xaxis: {...axis, title: named(kx)}, yaxis: {title: {text: esc(name), standoff: 10}}});
  }
  const over = repetitions.filter(k => k !== kx && k !== second && distinct(runs.map(r => r.values[k])).length > 1), many = counts[counts.length - 1] > 1;
  $("effectnote").textContent = [
    many ? `Each ${map ? "cell" : "point"} is the mean of ${counts.join(" or ")} runs that differ in ${listed(over) || "nothing but time"}${map ? "" : `; bars ${numeric(kx) ? "and bands " : ""}are one standard error`}.` : `Each ${map ? "cell" : "point"} is one run.`,
    selectors.length ? `Only the runs with ${selectors.map(([k, , v]) => `${D.keys[k].name} = ${label(k, v)}`).join(", ")} are drawn; the selectors above change that.` : "",
    along.length ? `${listed(along)} change${along.length === 1 ? "s" : ""} together with what is drawn.` : ""].filter(Boolean).join(" ");
}

function parallel() {
  const all = rows().filter(row => row.metric.mean !== null), own = settings.length ? settings : repetitions;
  const varies = own.filter(k => { const n = distinct(all.map(row => row.values[k])).length; return n > 1 && n <= 60; });
  const most = narrow() ? 6 : 8, keys = varies.slice(0, most);
  if (!keys.length || all.length < 2) { empty("parallel", "parallelnote", "There is nothing to compare: no setting varies among these runs."); return; }
  const t = theme(), upright = !narrow(), axes = [...keys, null], name = D.metrics[state.metric].name;
  const values = keys.map(k => distinct(all.map(row => row.values[k]))), numbers = all.map(row => row.metric.mean);
  const low = Math.min(...numbers), high = Math.max(...numbers), unit = v => high > low ? (v - low) / (high - low) : 0.5;
  // Values stand at equal distances in their order, because settings are often powers of ten, or words.
  const place = (row, a) => axes[a] === null ? unit(row.metric.mean) : values[a].length > 1 ? values[a].indexOf(row.values[axes[a]]) / (values[a].length - 1) : 0.5;
  const good = row => lower(state.metric) ? 1 - unit(row.metric.mean) : unit(row.metric.mean);
  const on = row => row.runs.some(r => r.number === state.chosen), xy = (a, p) => upright ? {x: a, y: p} : {x: p, y: -a};
  // Lines of about the same accuracy make one trace: a trace for each of 2000 lines would be slow.
  const bins = Array.from({length: 8}, () => []), traces = [];
  for (const row of all) if (!on(row)) bins[Math.min(7, Math.floor(good(row) * 8))].push(row);
  const trace = (list, colour, width, opacity) => { const x = [], y = [], words = [], runs = [];
    for (const row of list) { const text = list.length > 400 ? "" : keys.map(k => `${esc(D.keys[k].name)} = ${esc(cut(label(k, row.values[k]), 40))}`).join("<br>") + `<br>${esc(name)} ${withError(row.metric)}`;
      axes.forEach((_, a) => { const p = xy(a, place(row, a)); x.push(p.x); y.push(p.y); words.push(text); runs.push(best(row.runs).number); });
      x.push(null); y.push(null); words.push(""); runs.push(null); }
    return {type: "scatter", mode: "lines+markers", x, y, line: {color: colour, width}, marker: {size: width + 3, color: colour}, opacity, hoverinfo: list.length > 400 ? "skip" : "text", hovertext: words, customdata: runs, showlegend: false}; };
  bins.forEach((list, b) => { if (list.length) { const f = (b + 0.5) / 8; traces.push(trace(list, `rgb(${t.weak.map((w, i) => Math.round(w + f * (t.strong[i] - w))).join()})`, 1.4, all.length > 300 ? 0.45 : 0.85)); } });
  const marked = all.filter(on); if (marked.length) traces.push(trace(marked, t.mark, 3.2, 1));
  const shapes = [], annotations = [], back = dark.matches ? "rgba(20,24,29,.82)" : "rgba(255,255,255,.82)";
  axes.forEach((k, a) => { const from = xy(a, 0), to = xy(a, 1);
    shapes.push({type: "line", x0: from.x, y0: from.y, x1: to.x, y1: to.y, line: {color: t.faint, width: 1.2}, layer: "below"});
    const title = k === null ? name : D.keys[k].name;
    // A long key is broken at its dots.
    const lines = upright ? title.split(/(?<=[._\/])/).reduce((l, part) => { const last = l[l.length - 1]; if (last !== undefined && (last + part).length <= 15) l[l.length - 1] = last + part; else l.push(part); return l; }, []) : [title];
    annotations.push(upright ? {x: a, y: 1.05, text: `<b>${lines.map(s => esc(cut(s, 18))).join("<br>")}</b>`, showarrow: false, bgcolor: back, yanchor: "bottom", xanchor: "center"}
      : {x: 0, y: -a + 0.2, text: `<b>${esc(cut(title, 44))}</b>`, showarrow: false, bgcolor: back, borderpad: 1, xanchor: "left", yanchor: "bottom"});
    const ticks = k === null ? [0, 0.25, 0.5, 0.75, 1].map(p => [p, fmt(low + p * (high - low))]).filter((_, i, l) => high > low || i === 2) : values[a].map((v, i) => [values[a].length > 1 ? i / (values[a].length - 1) : 0.5, label(k, v)]);
    const step = Math.ceil(ticks.length / (upright ? 12 : 5)), width = upright ? Math.max(8, Math.floor(($("parallel").clientWidth - 60) / axes.length / 9)) : Math.max(5, Math.floor(44 / Math.min(ticks.length, 5)));
    ticks.filter((_, i) => i % step === 0 || (i === ticks.length - 1 && step === 1)).forEach(([p, words]) => { const q = xy(a, p);
      annotations.push({...q, text: esc(cut(words, width)), showarrow: false, bgcolor: back, borderpad: 1, font: {size: narrow() ? 11 : 12}, ...(upright ? {xanchor: k === null ? "left" : "left", xshift: 7} : {yanchor: "top", yshift: -7, xanchor: p === 0 ? "left" : p === 1 ? "right" : "center"})}); }); });
  const hidden = {visible: false, fixedrange: true};
  plot("parallel", traces, {height: upright ? 440 : 60 + 74 * axes.length, shapes, annotations, hovermode: "closest", dragmode: false, margin: {l: upright ? 70 : 14, r: upright ? 70 : 14, t: upright ? 78 : 14, b: 16},
    xaxis: {...hidden, range: upright ? [-0.05, axes.length - 1 + 0.3] : [-0.02, 1.02]}, yaxis: {...hidden, range: upright ? [-0.05, 1.05] : [-axes.length + 0.5, 0.55]}});
  $("parallel").removeAllListeners("plotly_click");
  $("parallel").on("plotly_click", e => { const run = e.points[0].customdata; if (run !== null) choose(run); });
  const left = own.filter(k => !keys.includes(k));
  $("parallelnote").textContent = `Each line is ${state.average ? "one choice of settings, averaged over its repetitions" : "a run"}; the stronger its blue, the better. Orange: the run chosen in the table.`
    + (keys.some(k => all.some(row => row.values[k] === ABSENT)) ? " A dash: the run has no such setting." : "")
    + (left.length ? ` Without an axis here, but in the table: ${listed(left)}.` : "");
}

function chosen() {
  const r = D.runs[state.chosen], names = D.classes[r.classes], name = D.metrics[state.metric].name, t = theme(), M = names.length;
  $("pair").classList.toggle("one", M > 12);
  $("chosen").textContent = `Run ${r.name}: ${name} ${fmt(value(r, state.metric))}`;
  $("chosennote").textContent = [best(D.runs) === r ? "The best run by this metric." : "", `Settings: ${r.how}.`, 
    D.keys.map((key, k) => r.values[k] === ABSENT ? "" : `${key.name} = ${cut(label(k, r.values[k]), 60)}`).filter(Boolean).slice(0, 10).join("; ") + "."].filter(s => s.length > 1).join(" ");
  const pairs = [...D.keys.map((key, k) => [key.name, label(k, r.values[k])]), ...r.more, ...(D.own[r.model] || [])];
  const lines = list => list.map(([k, v]) => `<tr><td>${esc(k)}</td><td>${esc(v)}</td></tr>`).join("");
  $("own").innerHTML = lines(pairs); $("constant").innerHTML = lines(D.constant);
  if (r.confusion === null) empty("confusion", "confusionnote", r.accuracy.every(a => a === null) ? "The true classes of the test images are not known; the answers are in predictions.csv of the run's folder." : "This page has no confusion matrix of this run; its folder has the answers in predictions.csv.");
  else {
    const n = names.map(() => names.map(() => 0)); for (const [i, j, count] of r.confusion) n[i][j] = count;
    const total = n.map(sum), share = n.map((l, i) => l.map(c => total[i] ? c / total[i] : null));
    const size = M <= 12 ? 56 : M <= 30 ? 34 : M <= 80 ? 17 : 11, letters = M <= 12 ? 13 : M <= 80 ? 12 : 9, longest = Math.min(16, Math.max(...names.map(s => s.length)));
    const edge = 34 + longest * letters * 0.62, room = $("confusion").parentElement.clientWidth - edge - 12, side = M > 30 && !narrow() || M > 80 ? Math.max(M * size, Math.min(room, 560)) : Math.min(room, Math.max(M * size, Math.min(room, 420)));
    const ticks = {tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names.map(s => esc(cut(s, 16))), tickfont: {size: letters}, showgrid: false, zeroline: false, automargin: false, constrain: "domain"};
    plot("confusion", [{type: "heatmap", x: names.map((_, i) => i), y: names.map((_, i) => i), z: share, zmin: 0, zmax: 1, xgap: 1, ygap: 1, colorscale: [[0, dark.matches ? "#20272f" : "#f1f5f9"], [1, t.high]], showscale: false,
      text: n.map(l => l.map(c => c ? String(c) : "")), texttemplate: side / M >= 24 ? "%{text}" : "", textfont: {size: side / M >= 40 ? 14 : 11}, hoverinfo: "text",
      hovertext: n.map((l, i) => l.map((c, j) => `${c} of ${total[i]} images of ${esc(names[i])} (${fmt(100 * (share[i][j] ?? 0))} %)<br>were given to ${esc(names[j])}`))}],
      {width: side + edge + 12, height: side + edge + 38, margin: {l: edge, t: edge + 26, r: 12, b: 12}, xaxis: {...ticks, side: "top", tickangle: -90, title: {text: "predicted class"}}, yaxis: {...ticks, range: [M - 0.5, -0.5], title: {text: "true class"}}});
    $("confusionnote").textContent = "Numbers of images; the colour is the share of the true class.";
  }
  const known = r.accuracy.some(a => a !== null), order = names.map((_, i) => i).sort((a, b) => known ? (r.accuracy[a] ?? -1) - (r.accuracy[b] ?? -1) : r.predicted[a] - r.predicted[b]);
  $("barstitle").textContent = known ? "Accuracy by class" : "Images given to each class";
  const length = i => known ? r.accuracy[i] : r.predicted[i];
  plot("bars", [{type: "bar", orientation: "h", x: order.map(i => length(i) ?? 0), y: order.map((_, i) => i), marker: {color: t.high}, hoverinfo: "skip",
    text: order.map(i => known ? (r.accuracy[i] === null ? "no images" : `${(100 * r.accuracy[i]).toFixed(1)} % of ${r.images[i]}`) : String(r.predicted[i])), textposition: "auto", insidetextanchor: "end"}],
    {height: 60 + 26 * M, margin: {l: 40, r: 28, t: 8, b: 40}, xaxis: known ? {range: [0, 1], tickformat: ".0%"} : {rangemode: "tozero"}, yaxis: {tickmode: "array", tickvals: order.map((_, i) => i), ticktext: order.map(i => esc(cut(names[i], 20))), showgrid: false, zeroline: false, range: [-0.6, M - 0.4]}});
}

// --- controls ------------------------------------------------------------------------------------------------

const options = (list, now) => list.map(([v, words]) => `<option value="${v}"${v === now ? " selected" : ""}>${esc(words)}</option>`).join("");
function preselect() {
  const counts = new Map([...settings, ...repetitions].map(k => [k, distinct(D.runs.map(r => r.values[k]).filter(v => v !== ABSENT)).length]));
  const most = ks => [...ks].sort((a, b) => counts.get(b) - counts.get(a)), numbers = most(settings.filter(k => numeric(k) && D.keys[k].numbers.filter(n => n !== null).length > 1)), words = most(settings.filter(k => !numbers.includes(k)));
  state.x = numbers[0] ?? words[0] ?? repetitions[0] ?? -1; state.y = -1;
  // Of two numeric keys, those that were combined in most ways: keys of different models, or equal ones, make no map.
  let ways = 3;
  numbers.slice(0, 12).forEach((x, i) => numbers.slice(i + 1, 12).forEach(y => {
    const both = D.runs.filter(r => r.values[x] !== ABSENT && r.values[y] !== ABSENT), n = new Set(both.map(r => r.values[x] + "," + r.values[y])).size;
    const nx = new Set(both.map(r => r.values[x])).size, ny = new Set(both.map(r => r.values[y])).size;
    if (n > ways && n > Math.max(nx, ny)) { ways = n; state.x = x; state.y = y; } }));
  state.line = numbers.length ? words.find(k => counts.get(k) <= 8) ?? -1 : words[1] ?? -1;
}
function controls() {
  for (const id of ["effectbox", "parallelbox"]) $(id).hidden = !D.keys.length;
  const axes = [...settings, ...repetitions].map(k => [k, D.keys[k].name]);
  $("x").innerHTML = options(axes, state.x); $("y").innerHTML = options([[-1, "(nothing: draw lines)"], ...axes.filter(([k]) => k !== state.x)], state.y);
  $("line").innerHTML = options([[-1, "(a single line)"], ...axes.filter(([k]) => k !== state.x)], state.line);
}
function draw() { $("meaning").textContent = D.metrics[state.metric].about; $("oracle").hidden = !D.metrics[state.metric].oracle; table(); effect(); parallel(); chosen(); }
$("about").textContent = D.about;
$("metric").innerHTML = options(D.metrics.map((m, i) => [i, m.name]), state.metric);
$("average").parentElement.hidden = !repetitions.length;
$("metric").onchange = e => { state.metric = Number(e.target.value); state.sort = "metric"; state.down = !lower(state.metric); state.chosen = best(D.runs).number; draw(); };
$("filter").oninput = e => { state.filter = e.target.value; table(); effect(); parallel(); };
$("average").onchange = e => { state.average = e.target.checked; table(); parallel(); };
$("csv").onclick = download;
for (const id of ["x", "y", "line"]) $(id).onchange = e => { state[id] = Number(e.target.value); if (state.y === state.x) state.y = -1; if (state.line === state.x) state.line = -1; controls(); effect(); };
$("held").onchange = e => { state.held[e.target.dataset.key] = Number(e.target.value); effect(); };
const choose = number => { state.chosen = number; table(); parallel(); chosen(); };
$("runs").onclick = e => { if (e.target.closest("a")) return;
  const column = e.target.closest("button")?.dataset.column, tr = e.target.closest("tr[data-run]");
  if (column) { state.down = state.sort === column ? !state.down : column === "metric" ? !lower(state.metric) : column[0] === "m" && !lower(Number(column.slice(1))); state.sort = column; table(); }
  else if (tr) choose(Number(tr.dataset.run)); };
state.down = !lower(state.metric);
state.chosen = best(D.runs).number;
preselect(); controls(); draw();
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; effect(); parallel(); chosen(); } });
dark.addEventListener("change", () => { effect(); parallel(); chosen(); });
document.body.dataset.ready = "yes";
