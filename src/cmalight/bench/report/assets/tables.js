// Tables: every text goes in as text.
"use strict";
const tables = (() => {
  function element(name, text, classes) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (classes) made.className = classes;
    return made;
  }

  function number(value, digits = 4) {
    if (value === Infinity) return "never";
    if (value === null || Number.isNaN(value)) return "";
    if (value === 0 || Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
    const size = Math.abs(value);
    return size < 1e-4 || size >= 1e6 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  }

  const order = (a, b) => {
    if (typeof a === "string" || typeof b === "string") return String(a).localeCompare(String(b), undefined, { numeric: true });
    const missing = (value) => value === null || Number.isNaN(value);
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return a === b ? 0 : a < b ? -1 : 1;
  };

  // columns: {title, text, long}; rows: {cells, texts: shown in place of some of them, best: Set of places, colour};
  // `state` keeps what it is sorted by.
  function sortable(table, columns, rows, state, redraw) {
    const head = element("tr");
    columns.forEach((column, at) => {
      const cell = element("th", undefined, column.text ? "text" : "");
      const button = element("button", column.title);
      button.type = "button";
      button.addEventListener("click", () => {
        state.descending = state.column === at ? !state.descending : false;
        state.column = at;
        redraw();
      });
      if (state.column === at) cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      cell.append(button);
      head.append(cell);
    });
    const sorted = rows.slice();
    if (state.column !== null) {
      const blank = (value) => value === null || Number.isNaN(value) || value === "";
      sorted.sort((a, b) => {
        const [x, y] = [a.cells[state.column], b.cells[state.column]];
        if (blank(x) || blank(y)) return blank(x) - blank(y);
        return state.descending ? order(y, x) : order(x, y);
      });
    }
    const body = element("tbody");
    for (const row of sorted) {
      const line = element("tr");
      row.cells.forEach((value, at) => {
        const text = row.texts?.get(at) ?? (typeof value === "string" ? value : number(value));
        const classes = [columns[at].text && "text", columns[at].long && "long", row.best?.has(at) && "best", value === Infinity && "never"];
        const cell = element("td", text, classes.filter(Boolean).join(" "));
        if (row.colour && at === row.colourAt) {
          const dot = element("span", undefined, "dot");
          dot.style.background = row.colour;
          cell.prepend(dot);
        }
        line.append(cell);
      });
      body.append(line);
    }
    const top = element("thead");
    top.append(head);
    table.replaceChildren(top, body);
  }

  function wins(table, solvers, counts, problems) {
    const head = element("tr");
    head.append(element("th", "wins of … over", "text"));
    solvers.forEach((solver) => {
      const cell = element("th");
      cell.title = solver.name;
      cell.append(element("span", solver.name));
      head.append(cell);
    });
    const body = element("tbody");
    solvers.forEach((solver, a) => {
      const line = element("tr"), name = element("td", solver.name), dot = element("span", undefined, "dot");
      dot.style.background = solver.colour;
      name.prepend(dot);
      line.append(name);
      counts[a].forEach((count, b) => {
        const cell = element("td", a === b ? "·" : String(count));
        if (a !== b) cell.style.background = `rgba(0, 114, 178, ${0.45 * count / Math.max(problems, 1)})`;
        line.append(cell);
      });
      body.append(line);
    });
    const top = element("thead");
    top.append(head);
    table.replaceChildren(top, body);
  }

  return { element, number, sortable, wins };
})();
