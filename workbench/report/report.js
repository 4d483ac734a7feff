// Tables of results sort by a click on a head. Charts zoom into a dragged stretch of steps; a double click shows all.
// The page is complete without this script.
for (const table of document.querySelectorAll(".results table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const text = (row) => row.cells[column].textContent.trim();
    const number = (row) => parseFloat(text(row).replaceAll(",", ""));
    const sort = () => {
      const down = head.ariaSort !== "descending";
      for (const other of head.parentNode.cells) other.ariaSort = "none";
      head.ariaSort = down ? "descending" : "ascending";
      const sign = down ? -1 : 1;
      const order = (a, b) =>
        column === 0 ? -sign * text(a).localeCompare(text(b))
          : (isNaN(number(a)) - isNaN(number(b))) || sign * (number(a) - number(b)) || 0;
      body.append(...[...body.rows].sort(order));
    };
    head.tabIndex = 0;
    head.classList.add("sorts");
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
for (const svg of document.querySelectorAll(".chart svg[data-frame]")) {
  const [left, right, top, bottom, x0, x1, y0, y1, log] = svg.dataset.frame.split(" ").map(Number);
  const axes = svg.querySelector(".axes"), whole = axes.innerHTML;
  const lines = [...svg.querySelectorAll(".line")].map((line) => ({
    line, d: line.getAttribute("d"), points: [...line.getAttribute("d").matchAll(/([\d.-]+),([\d.-]+)/g)].map((p) => [+p[1], +p[2]]),
  }));
  const dots = [...svg.querySelectorAll(".dot")].map((dot) => ({ dot, at: [+dot.getAttribute("cx"), +dot.getAttribute("cy")] }));
  const ticks = (low, high, count) => {
    const raw = (high - low) / count, unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999), first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => +((first + i) * step).toPrecision(12));
  };
  const draw = (a, b) => {
    const inside = ([x]) => x >= a && x <= b, ys = lines.flatMap(({ points }) => points.filter(inside)).map(([, y]) => y);
    if (ys.length < 2) return;
    const high = Math.min(...ys) - 3, low = Math.max(...ys) + 3;
    const x = (px) => left + ((px - a) / (b - a)) * (right - left), y = (py) => top + ((py - high) / (low - high)) * (bottom - top);
    for (const { line, points } of lines) {
      const shown = points.filter(inside);
      line.setAttribute("d", shown.length ? "M" + shown.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join(" L") : "");
    }
    for (const { dot, at } of dots) {
      dot.style.display = inside(at) ? "" : "none";
      dot.setAttribute("cx", x(at[0])), dot.setAttribute("cy", y(at[1]));
    }
    const [from, to] = log ? [Math.log(y0), Math.log(y1)] : [y0, y1];
    const value = (py) => { const at = from + ((bottom - py) / (bottom - top)) * (to - from); return log ? Math.exp(at) : at; };
    const pixel = (v) => bottom - (((log ? Math.log(v) : v) - from) / (to - from)) * (bottom - top);
    const step = (px) => x0 + ((px - left) / (right - left)) * (x1 - x0), back = (v) => left + ((v - x0) / (x1 - x0)) * (right - left);
    const text = (at, v, end) => `<text class="tick" x="${at[0]}" y="${at[1]}" text-anchor="${end}">${v.toLocaleString("en")}</text>`;
    axes.innerHTML = ticks(value(low), value(high), 5).map((v) => `<line class="grid" x1="${left}" x2="${right}" y1="${y(pixel(v))}" y2="${y(pixel(v))}"/>` + text([left - 8, y(pixel(v)) + 3.5], v, "end")).join("")
      + ticks(step(a), step(b), 6).map((v) => text([x(back(v)), bottom + 16], v, "middle")).join("");
  };
  const at = (event) => Math.min(Math.max(new DOMPoint(event.clientX, 0).matrixTransform(svg.getScreenCTM().inverse()).x, left), right);
  let view = [left, right], begun = null;
  const own = (px) => view[0] + ((px - left) / (right - left)) * (view[1] - view[0]);
  svg.classList.add("zooms");
  svg.addEventListener("pointerdown", (event) => { begun = at(event); svg.setPointerCapture(event.pointerId); });
  svg.addEventListener("pointerup", (event) => {
    const ends = [begun, at(event)].sort((one, other) => one - other);
    if (begun !== null && ends[1] - ends[0] > 8) draw(...(view = ends.map(own)));
    begun = null;
  });
  svg.addEventListener("dblclick", () => {
    view = [left, right];
    axes.innerHTML = whole;
    for (const { line, d } of lines) line.setAttribute("d", d);
    for (const { dot, at } of dots) dot.setAttribute("cx", at[0]), dot.setAttribute("cy", at[1]), (dot.style.display = "");
  });
}
