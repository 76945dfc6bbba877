"use strict";
// Looks at the runs every two seconds and draws what has changed.

const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"];
const WIDTH = 360, HEIGHT = 220, LEFT = 48, BOTTOM = 24, TOP = 6;
const AXES = ["iteration", "epoch", "seconds"];
const hidden = new Set();
const texts = new Map();
let runs = [], curves = new Map();

const byId = (id) => document.getElementById(id);
const colour = (i) => COLOURS[i % COLOURS.length];

function element(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g", "title"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

function short(value) {
  if (typeof value !== "number") return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}

function flat(value, path = "") {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return { [path]: value };
  return Object.assign({}, ...Object.entries(value).map(([name, inner]) => flat(inner, path ? `${path}.${name}` : name)));
}

function table() {
  const configs = runs.map((run) => flat(run.config));
  const fields = [...new Set(configs.flatMap(Object.keys))].filter(Boolean);
  const head = element("tr", {}, ...["", "run", "state", ...fields, "iteration", "epoch", "error"].map((name) => element("th", { scope: "col" }, name)));
  const rows = runs.map((run, i) => {
    const box = element("input", { type: "checkbox", "aria-label": `show ${run.name}` });
    box.checked = !hidden.has(run.name);
    box.addEventListener("change", () => { box.checked ? hidden.delete(run.name) : hidden.add(run.name); draw(); });
    const swatch = element("span", { class: "swatch", style: `background:${colour(i)}` });
    const cells = [run.state || "–", ...fields.map((f) => (f in configs[i] ? short(configs[i][f]) : "")), run.last.iteration ?? "", run.last.epoch ?? ""];
    return element("tr", {}, element("td", {}, box), element("td", {}, swatch, run.name), ...cells.map((cell) => element("td", {}, cell)), element("td", { class: "error" }, run.error));
  });
  byId("runs").replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function ticks(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2 || 1));
  const wide = [1, 2, 5, 10].map((n) => n * step).find((n) => (high - low) / n <= 4) || step;
  const found = [];
  for (let tick = Math.ceil(low / wide) * wide; tick <= high + wide * 1e-9; tick += wide) found.push(tick);
  return found;
}

function chart(metric, lines, logarithmic) {
  const usable = lines.map(({ points, i }) => ({ i, points: logarithmic ? points.filter(([, y]) => y > 0).map(([x, y]) => [x, Math.log10(y)]) : points }));
  const all = usable.flatMap(({ points }) => points);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": metric });
  if (all.length) {
    const range = (k) => all.reduce(([low, high], point) => [Math.min(low, point[k]), Math.max(high, point[k])], [Infinity, -Infinity]);
    const [left, right] = range(0), [low, high] = range(1);
    const x = (v) => LEFT + ((v - left) / (right - left || 1)) * (WIDTH - LEFT - 8);
    const y = (v) => HEIGHT - BOTTOM - ((v - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);
    for (const tick of ticks(low, high)) {
      svg.append(element("line", { class: "axis", x1: LEFT, x2: WIDTH - 8, y1: y(tick), y2: y(tick) }));
      svg.append(element("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, short(logarithmic ? 10 ** tick : tick)));
    }
    for (const tick of ticks(left, right)) svg.append(element("text", { x: x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, short(tick)));
    for (const { points, i } of usable) {
      if (!points.length) continue;
      const path = points.map(([px, py], k) => `${k ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
      svg.append(element("path", { d: path, stroke: colour(i), "data-run": runs[i].name }, element("title", {}, runs[i].name)));
      const [px, py] = points[points.length - 1];
      svg.append(element("circle", { cx: x(px), cy: y(py), r: 2.5, fill: colour(i) }));
    }
  }
  return element("div", { class: "chart" }, element("h2", {}, metric), svg);
}

function along(axis, run) {
  // The points of each metric, over iterations, epochs or seconds.
  const found = curves.get(run) || {};
  if (axis === "iteration") return found;
  const at = new Map(found[axis] || []);
  const moved = Object.entries(found).map(([name, points]) => [name, points.filter(([i]) => at.has(i)).map(([i, value]) => [at.get(i), value])]);
  return Object.fromEntries(moved);
}

function draw() {
  table();
  const axis = byId("axis").value, logarithmic = byId("log").checked;
  const metrics = new Map();
  runs.forEach((run, i) => {
    if (hidden.has(run.name)) return;
    for (const [metric, points] of Object.entries(along(axis, run.name))) {
      if (AXES.includes(metric)) continue;
      if (!metrics.has(metric)) metrics.set(metric, []);
      metrics.get(metric).push({ points, i });
    }
  });
  byId("curves").replaceChildren(...[...metrics].map(([metric, lines]) => chart(metric, lines, logarithmic)));
  const figures = runs.filter((run) => !hidden.has(run.name)).flatMap((run) => {
    const address = (file) => `/api/file?run=${encodeURIComponent(run.name)}&name=${encodeURIComponent(file.name)}&time=${file.time}`;
    const caption = (file) => element("figcaption", {}, `${run.name}: ${file.name}`);
    return [
      ...run.pictures.map((file) => element("figure", {}, element("img", { src: address(file), alt: file.name }), caption(file))),
      ...run.texts.map((file) => element("figure", {}, element("pre", {}, texts.get(address(file)) ?? ""), caption(file))),
    ];
  });
  byId("samples").replaceChildren(...figures);
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${answer.status} ${address}`);
  return answer;
}

async function look() {
  try {
    const before = JSON.stringify(runs);
    const found = await (await fetched("/api/runs")).json();
    if (JSON.stringify(found) !== before) {
      runs = found;
      for (const run of runs) {
        curves.set(run.name, await (await fetched(`/api/curves?run=${encodeURIComponent(run.name)}`)).json());
        for (const file of run.texts) {
          const address = `/api/file?run=${encodeURIComponent(run.name)}&name=${encodeURIComponent(file.name)}&time=${file.time}`;
          if (!texts.has(address)) texts.set(address, await (await fetched(address)).text());
        }
      }
      draw();
    }
    byId("state").textContent = runs.length ? `${runs.length} runs` : "no runs yet";
  } catch (error) {
    byId("state").textContent = `not reached: ${error.message}`;
  }
}

byId("axis").addEventListener("change", draw);
byId("log").addEventListener("change", draw);
look();
setInterval(look, 2000);
