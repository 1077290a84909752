// The cells of a table know the head of their column: on a telephone they stand below each other (site.css).
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => {
        if (place > 0 && heads[place]) cell.dataset.head = heads[place];
      });
    }
  }
});

// The buttons that copy are named for those who do not see them.
window.addEventListener("load", () => {
  for (const button of document.querySelectorAll(".copybtn")) button.setAttribute("aria-label", "Copy this code");
});

// Paper is light.
let screenTheme;
window.addEventListener("beforeprint", () => {
  screenTheme = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
});
window.addEventListener("afterprint", () => {
  document.documentElement.dataset.theme = screenTheme;
});
