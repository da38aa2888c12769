// Draws the charts of a page from the data beside them, sorts tables, and turns leaves.
// Without it, all figures are still there, as text and tables.

const short = Intl.NumberFormat("en", { notation: "compact" });
const compact = (value) => (value < 1e15 ? short.format(value) : value.toExponential(0).replace("+", ""));
const percent = (value) => `${+(100 * value).toPrecision(3)}%`;

// The axes that most charts share. `data` names them, and says which are logarithmic or shares.
function axes(data, width) {
  const axis = (label, log, share) => ({
    label,
    type: log ? "log" : "linear",
    tickFormat: share ? percent : compact,
    ticks: log ? Math.max(3, width / 130) : undefined,
  });
  return {
    x: axis(data.x, data.xlog, data.xshare),
    y: { ...axis(data.y, data.ylog, data.yshare), grid: true },
  };
}

// Vertical lines, with names along them.
function landmarks(marks) {
  const halo = { fill: "var(--second)", stroke: "var(--paper)", strokeWidth: 4 };
  return [
    Plot.ruleX(marks, { x: "at", stroke: "var(--second)", strokeDasharray: "3,3" }),
    Plot.text(marks, { x: "at", text: "label", rotate: -90, frameAnchor: "top", textAnchor: "end", dx: -7, dy: 2, ...halo }),
  ];
}

const palette = ["#4269d0", "#c98a00", "#d94a38", "#3a9d96", "#3f9a45", "#d05f9c", "#8f5fc9", "#4a90c4", "#8a6442", "#7d828c"];

const kinds = {
  histogram: (data, width) => ({
    ...axes({ ...data, yshare: true }, width),
    marks: [
      Plot.ruleY([0]),
      Plot.rectY(data.bins, { x1: "low", x2: "high", y: "share", fill: "var(--accent)", insetLeft: 0.5, title: "text", tip: true }),
      ...landmarks(data.marks),
    ],
  }),
  bars: (data, width) => ({
    marginLeft: Math.min(220, 16 + 7 * Math.max(...data.bars.map((bar) => bar.name.length))),
    marginRight: 90,
    height: 72 + 24 * data.bars.length,
    x: { ...axes(data, width).x, grid: true },
    y: { label: null, domain: data.bars.map((bar) => bar.name), tickFormat: (name) => (name.length > 30 ? `…${name.slice(-29)}` : name) },
    marks: [
      Plot.barX(data.bars, { x: "value", y: "name", fill: (bar) => (bar.best ? "var(--accent)" : "var(--soft)"), insetTop: 2, insetBottom: 2, title: "text", tip: true }),
      Plot.text(data.bars, { x: "value", y: "name", text: "text", textAnchor: "start", dx: 4 }),
      Plot.ruleX([0]),
    ],
  }),
  lines: (data, width) => ({
    ...axes(data, width),
    ...(data.xticks.length && { x: { ...axes(data, width).x, base: 2, ticks: data.xticks, tickFormat: "," } }),
    color: { legend: new Set(data.points.map((point) => point.name)).size > 1, range: ["var(--accent)", "var(--second)", "var(--soft)"] },
    marks: [
      Plot.lineY(data.points, { x: "x", y: "y", stroke: "name", strokeWidth: 2 }),
      Plot.dot(data.points, { x: "x", y: "y", fill: "name", r: 3, title: "text", tip: true }),
      ...landmarks(data.marks),
    ],
  }),
  dots: (data, width) => ({
    ...axes(data, width),
    marginRight: 60,
    marks: [
      Plot.dot(data.points, { x: "x", y: "y", fill: "var(--accent)", r: 5, title: "text", tip: true }),
      Plot.text(data.points, { x: "x", y: "y", text: "name", textAnchor: "start", dx: 8 }),
    ],
  }),
  rows: (data) => ({
    height: 66 + 26 * data.rows,
    x: { label: data.x, domain: [0, data.length], tickFormat: compact },
    y: { type: "band", label: null, domain: [...Array(data.rows).keys()], tickFormat: (row) => `row ${row}` },
    marginLeft: 50,
    marks: [
      Plot.barX(data.spans, {
        x1: "from",
        x2: "to",
        y: "row",
        fill: (span) => (span.kind === "padding" ? "var(--line)" : palette[span.order % palette.length]),
        fillOpacity: (span) => (span.kind === "no loss" ? 0.35 : 1),
        insetLeft: 0.5,
        insetTop: 2,
        insetBottom: 2,
        title: "text",
        tip: true,
      }),
    ],
  }),
};
function draw(figure) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const place = figure.querySelector(".drawn");
  const width = Math.max(300, place.clientWidth);
  const chart = Plot.plot({
    width,
    height: 260,
    marginBottom: 42,
    ariaLabel: data.title,
    style: { background: "none", color: "inherit", fontSize: "12px" },
    ...kinds[data.kind](data, width),
  });
  // The picture as a whole has a name; names of its groups are not allowed without roles.
  chart.querySelectorAll("g[aria-label]").forEach((group) => group.removeAttribute("aria-label"));
  (chart.matches("svg") ? chart : chart.querySelector("svg[aria-label]"))?.setAttribute("role", "img");
  place.replaceChildren(chart);
}

function sortable(table) {
  if (table.tBodies[0].rows.length < 3) return;
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") === "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table.tBodies[0], column, ascending ? 1 : -1);
    });
  });
}

function sort(body, column, sign) {
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : +cell.dataset.value;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  body.append(...[...body.rows].sort((a, b) => sign * compare(value(a), value(b))));
}

// Shows one leaf of a list at a time, with buttons before and after.
function leafable(list) {
  const leaves = [...list.children];
  const button = (text) => Object.assign(document.createElement("button"), { type: "button", textContent: text });
  const [before, after] = [button("previous"), button("next")];
  const place = document.createElement("span");
  place.setAttribute("role", "status");
  let shown = 0;
  const turn = (step) => {
    shown += step;
    leaves.forEach((leaf, at) => (leaf.hidden = at !== shown));
    place.textContent = `${shown + 1} of ${leaves.length}`;
    before.disabled = shown === 0;
    after.disabled = shown === leaves.length - 1;
    if (step && document.activeElement === document.body) (step > 0 ? before : after).focus();
  };
  before.addEventListener("click", () => turn(-1));
  after.addEventListener("click", () => turn(1));
  const bar = Object.assign(document.createElement("div"), { className: "turn" });
  bar.append(before, place, after);
  list.before(bar);
  turn(0);
}

const figures = [...document.querySelectorAll("figure.chart")];
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll(".leaves").forEach(leafable);
figures.forEach(draw);
let before = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== before) figures.forEach(draw);
  before = innerWidth;
});
