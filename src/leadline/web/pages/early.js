// Runs before the page is painted, so that a theme that was chosen earlier does not flash.
(() => {
  try {
    const theme = localStorage.getItem("leadline-theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch { /* no storage: the theme of the system */ }
})();
