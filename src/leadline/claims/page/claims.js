// The page of claims: languages, filters, the exercise, and the pictures that can be moved.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("leadline-data").textContent);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (id) => document.getElementById(id);
  const kept = {
    read(name) { try { return localStorage.getItem(name); } catch { return null; } },
    write(name, value) { try { localStorage.setItem(name, value); } catch { } },
  };

  // --- formulas of the pictures; the tests compare them with NumPy --------------------------
  const hypot = Math.hypot;
  const formulas = {
    // Logarithms to base 10 of (1 + e)^L, (1 - e)^L, e^L.
    powers: (e, L) => [L * Math.log10(1 + e), L * Math.log10(1 - e), L * Math.log10(e)],
    // A = softmax of the rows (s, 0) and (t, 0); singular values of a 2 x 2 matrix in closed form.
    attention(s, t) {
      const a = 1 / (1 + Math.exp(-s)), b = 1 / (1 + Math.exp(-t));
      const [p, q, r, w] = [a, 1 - a, b, 1 - b];
      const E = (p + w) / 2, F = (p - w) / 2, G = (r + q) / 2, H = (r - q) / 2;
      const Q = hypot(E, H), R = hypot(F, G);
      // The right singular vector of the larger value stands at half the difference of two angles.
      const theta = (Math.atan2(G, F) - Math.atan2(H, E)) / 2;
      let v = [Math.cos(theta), Math.sin(theta)];
      if (v[0] + v[1] < 0) v = [-v[0], -v[1]];
      return {
        matrix: [[p, q], [r, w]],
        long: Q + R,
        short: Math.abs(Q - R),
        bound: Math.sqrt(Math.max(p + r, q + w)),
        before: v,
        after: [p * v[0] + q * v[1], r * v[0] + w * v[1]],
      };
    },
    layerNorm(x) {
      const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
      const centred = x.map((v) => v - mean);
      const deviation = Math.sqrt(centred.reduce((sum, v) => sum + v * v, 0) / x.length);
      return centred.map((v) => v / deviation);
    },
    // sqrt(3) times the singular values of diag(g) B: roots of the eigenvalues of B' diag(g^2) B.
    gainedAxes([a, b, c]) {
      const [A, B, C] = [a * a, b * b, c * c];
      const p = (A + B) / 2, r = (A + B + 4 * C) / 6, q = (A - B) / Math.sqrt(12);
      const half = (p + r) / 2, root = hypot((p - r) / 2, q);
      return [Math.sqrt(3 * (half + root)), Math.sqrt(Math.max(0, 3 * (half - root)))];
    },
    view([x, y, z], turn) {
      const [c, s] = [Math.cos(turn), Math.sin(turn)];
      const [ce, se] = [Math.cos(data.elevation), Math.sin(data.elevation)];
      return [-s * x + c * y, -c * se * x - s * se * y + ce * z];
    },
    // The number with this logarithm to base 10, as HTML.
    ten(logarithm) {
      if (logarithm >= -3 && logarithm < 5) {
        const value = 10 ** logarithm;
        return value < 1000 ? String(Number(value.toPrecision(3))) : value.toFixed(0);
      }
      let power = Math.floor(logarithm), mantissa = (10 ** (logarithm - power)).toFixed(2);
      if (mantissa === "10.00") { mantissa = "1.00"; power += 1; }
      return `${mantissa}\u202f×\u202f10<sup>${String(power).replace("-", "−")}</sup>`;
    },
  };
  window.leadline = formulas;

  // --- languages ----------------------------------------------------------------------------
  const english = {}, math = {}, labels = new Map();
  for (const element of all("math[data-f]")) math[element.dataset.f] ??= element.outerHTML;
  for (const element of all("[data-t]")) english[element.dataset.t] ??= element.innerHTML;
  for (const element of all("[data-a]")) {
    labels.set(element, element.dataset.a.split(" ").map((pair) => {
      const [name, id] = pair.split(":");
      return [name, id, element.getAttribute(name)];
    }));
  }
  let language = "en";
  const text = (id) => language === "en" ? english[id]
    : data.tables[language][id].replace(/⟦(\d+)⟧/g, (_, key) => math[key]);
  const speak = (code) => {
    if (!Object.hasOwn(data.languages, code)) return;
    const first = all("article.claim").find((a) => !a.hidden && a.getBoundingClientRect().bottom > innerHeight * 0.3);
    const place = first && scrollY > 300 ? first.getBoundingClientRect().top : null;
    const counts = Object.fromEntries(all("[data-n]").map((e) => [e.dataset.n, e.textContent]));
    language = code;
    document.documentElement.lang = { zh: "zh-Hans" }[code] ?? code;
    for (const element of all("[data-t]")) element.innerHTML = text(element.dataset.t);
    // Words inside formulas came with them.
    for (const element of all("math [data-t]")) element.innerHTML = text(element.dataset.t);
    for (const element of all("[data-n]")) element.textContent = counts[element.dataset.n];
    for (const [element, list] of labels) {
      for (const [name, id, own] of list) {
        element.setAttribute(name, code === "en" ? own : data.tables[code][id]);
      }
    }
    for (const button of all("[data-language]")) {
      button.setAttribute("aria-pressed", String(button.dataset.language === code));
    }
    searched.clear();
    sift();
    // What was being read stays where it was.
    if (place !== null) scrollBy({ top: first.getBoundingClientRect().top - place, behavior: "instant" });
  };
  for (const button of all("[data-language]")) {
    button.addEventListener("click", () => {
      kept.write("leadline-language", button.dataset.language);
      speak(button.dataset.language);
    });
  }

  // --- filters ------------------------------------------------------------------------------
  const articles = all("article.claim"), searched = new Map();
  const pressed = new Set();
  const words = (article) => {
    if (!searched.has(article)) {
      const parts = all(":scope > header, .text, .key, .strip > p", article);
      searched.set(article, `${article.id} ${parts.map((p) => p.textContent).join(" ")}`.toLowerCase());
    }
    return searched.get(article);
  };
  const sift = () => {
    const wanted = one("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const note = one("note").value;
    const active = wanted.length > 0 || note !== "" || pressed.size > 0;
    let shown = 0;
    for (const article of articles) {
      const fits = (pressed.size === 0 || pressed.has(article.dataset.verdict))
        && (note === "" || article.dataset.notes.split(" ").includes(note))
        && wanted.every((word) => words(article).includes(word));
      article.hidden = !fits;
      shown += fits;
    }
    for (const chapter of all(".chapter")) {
      const count = all("article.claim", chapter).filter((a) => !a.hidden).length;
      for (const piece of all(".play", chapter)) piece.hidden = active;
      chapter.hidden = active && count === 0;
      const badge = document.querySelector(`[data-group-count="${chapter.id}"]`);
      badge.textContent = count;
      badge.closest("a").classList.toggle("none", chapter.hidden);
    }
    for (const part of all(".bar span")) {
      part.classList.toggle("off", pressed.size > 0 && ![...pressed].some((v) => part.classList.contains(v)));
    }
    for (const button of all("[data-filter]")) {
      button.setAttribute("aria-pressed", String(pressed.has(button.dataset.filter)));
    }
    for (const place of all('[data-n="shown"]')) place.textContent = shown;
    one("nothing").hidden = shown > 0;
    one("reset").disabled = !active;
  };
  const clear = () => {
    pressed.clear();
    one("search").value = one("note").value = "";
    sift();
  };
  const toggle = (kind) => {
    if (!pressed.delete(kind)) pressed.add(kind);
    sift();
  };
  for (const button of all("[data-filter]")) button.addEventListener("click", () => toggle(button.dataset.filter));
  for (const part of all(".bar span")) part.addEventListener("click", () => toggle(part.classList[0]));
  one("search").addEventListener("input", sift);
  one("note").addEventListener("change", sift);
  one("reset").addEventListener("click", clear);
  one("filters").addEventListener("submit", (event) => event.preventDefault());
  // An address that cannot be read, such as #%, is none.
  const address = () => {
    try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
  };
  // A link to what a filter hides takes the filter away.
  const reveal = () => {
    const target = one(address());
    if (target?.closest("[hidden]")) { clear(); target.scrollIntoView(); }
  };
  addEventListener("hashchange", () => { reveal(); locate(); });
  for (const link of all('a[href^="#"]')) link.addEventListener("click", () => setTimeout(reveal));

  // --- where the reader is --------------------------------------------------------------------
  const links = all("[data-chapter]");
  const locate = () => {
    // At the end of the page the last chapter may be too short to come to the top.
    const ended = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
    const line = innerHeight * (ended ? 1 : 0.35);
    let here = null;
    for (const chapter of all(".chapter")) {
      if (!chapter.hidden && chapter.getBoundingClientRect().top < line) here = chapter.id;
    }
    for (const link of links) {
      const now = link.dataset.chapter === here;
      if (now && !link.classList.contains("here") && link.closest("nav").scrollWidth > innerWidth) {
        const nav = link.closest("nav");
        nav.scrollTo({ left: link.offsetLeft - 40 });
      }
      link.classList.toggle("here", now);
      if (now) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; locate(); });
  }, { passive: true });

  one("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    kept.write("leadline-theme", root.dataset.theme);
  });

  // --- the exercise -------------------------------------------------------------------------
  const exercise = one("exercise");
  if (exercise) {
    const chosen = () => exercise.querySelector("input:checked")?.value;
    const answer = () => {
      for (const piece of all(".answer")) piece.classList.toggle("shown", piece.dataset.answer === chosen());
      one("exercise-measured").classList.add("shown");
      const curves = one("exercise-curves");
      const figure = document.querySelector("#zero-easier-than-identity .own");
      if (curves && figure && !curves.firstChild) curves.append(figure.cloneNode(true));
    };
    exercise.addEventListener("change", () => { one("answer").disabled = false; });
    exercise.addEventListener("submit", (event) => { event.preventDefault(); if (chosen()) answer(); });
    one("answer").addEventListener("click", answer);
  }

  // --- pictures that can be moved -----------------------------------------------------------
  const value = (id) => Number(one(id).value);
  const path = (points) => "M" + points.map(([x, y]) => `${x.toFixed(2)} ${y.toFixed(2)}`).join("L");
  const around = Array.from({ length: 121 }, (_, k) => (2 * Math.PI * k) / 120);
  const moved = (ids, draw) => {
    if (!one(ids[0])) return;
    for (const id of ids) {
      one(id).addEventListener("input", () => { one(`${id}-value`).textContent = one(id).value; draw(); });
    }
    // A browser may keep a slider's place over a reload.
    for (const id of ids) one(`${id}-value`).textContent = one(id).value;
    draw();
  };

  moved(["power-l", "power-e"], () => {
    const [left, right, top, bottom] = data.powers.box;
    const { decades, deepest } = data.powers;
    const far = (L) => left + ((right - left) * L) / deepest;
    const high = (v) => (top + bottom) / 2 - (((bottom - top) / 2) * v) / decades;
    const L = value("power-l"), e = value("power-e");
    const ends = formulas.powers(e, deepest), now = formulas.powers(e, L);
    ["more", "less", "only"].forEach((kind, k) => {
      const from = [left, high(0)], to = [far(L), high(now[k])];
      one(`power-${kind}-far`).setAttribute("d", path([from, [right, high(ends[k])]]));
      one(`power-${kind}`).setAttribute("d", path([from, to]));
      one(`power-${kind}-end`).setAttribute("cx", to[0].toFixed(2));
      one(`power-${kind}-end`).setAttribute("cy", to[1].toFixed(2));
      one(`number-${kind}`).innerHTML = formulas.ten(now[k]);
    });
    one("power-depth").setAttribute("d", path([[far(L), top], [far(L), bottom]]));
  });

  moved(["ellipse-s", "ellipse-t"], () => {
    const found = formulas.attention(value("ellipse-s"), value("ellipse-t"));
    const unit = data.units[0], place = ([x, y]) => [160 + unit * x, 160 - unit * y];
    const [[p, q], [r, w]] = found.matrix;
    const image = around.map((a) => [p * Math.cos(a) + q * Math.sin(a), r * Math.cos(a) + w * Math.sin(a)]);
    one("ellipse-image").setAttribute("d", `${path(image.map(place))}z`);
    one("ellipse-before").setAttribute("d", path([[0, 0], found.before].map(place)));
    one("ellipse-after").setAttribute("d", path([[0, 0], found.after].map(place)));
    one("ellipse-bound").setAttribute("r", (unit * found.bound).toFixed(2));
    found.matrix.forEach((row, i) => row.forEach((v, j) => { one(`ellipse-${i}${j}`).textContent = v.toFixed(3); }));
    one("ellipse-long").textContent = found.long.toFixed(4);
    one("ellipse-short").textContent = found.short.toFixed(4);
    one("ellipse-limit").textContent = found.bound.toFixed(4);
  });

  moved(["gain-1", "gain-2", "gain-3", "sphere-turn"], () => {
    const gains = [1, 2, 3].map((k) => value(`gain-${k}`)), turn = (value("sphere-turn") * Math.PI) / 180;
    const unit = data.units[1];
    const place = (point) => { const [x, y] = formulas.view(point, turn); return [160 + unit * x, 160 - unit * y]; };
    const gained = (point) => point.map((v, k) => v * gains[k]);
    const [u, v] = [1 / Math.sqrt(2), 1 / Math.sqrt(6)];
    const circle = around.map((a) => {
      const [c, s] = [Math.sqrt(3) * Math.cos(a), Math.sqrt(3) * Math.sin(a)];
      return [u * c + v * s, -u * c + v * s, -2 * v * s];
    });
    const normal = data.tokens.map(formulas.layerNorm);
    const dots = (id, points) => [...one(id).children].forEach((dot, k) => {
      const [x, y] = place(points[k]);
      dot.setAttribute("cx", x.toFixed(2));
      dot.setAttribute("cy", y.toFixed(2));
    });
    const a = data.units[2], ends = [[a, 0, 0], [0, a, 0], [0, 0, a]];
    one("sphere-axes").setAttribute("d", ends.map((end) => path([[0, 0, 0], end].map(place))).join(""));
    ends.forEach((end, k) => {
      const [x, y] = place(end.map((c) => 1.08 * c));
      one(`sphere-x${k + 1}`).setAttribute("x", x.toFixed(2));
      one(`sphere-x${k + 1}`).setAttribute("y", (y + 4).toFixed(2));
    });
    one("sphere-circle").setAttribute("d", `${path(circle.map(place))}z`);
    one("sphere-ellipse").setAttribute("d", `${path(circle.map((p) => place(gained(p))))}z`);
    one("sphere-rays").setAttribute("d", data.tokens.map((t, k) => path([place(t), place(normal[k])])).join(""));
    dots("sphere-tokens", data.tokens);
    dots("sphere-normal", normal);
    dots("sphere-gained", normal.map(gained));
    const lengths = normal.map((p) => hypot(...p));
    one("sphere-lengths").textContent = `${Math.min(...lengths).toFixed(4)} – ${Math.max(...lengths).toFixed(4)}`;
    const [long, short] = formulas.gainedAxes(gains);
    one("sphere-long").textContent = long.toFixed(4);
    one("sphere-short").textContent = short.toFixed(4);
  });

  // --- the first state ----------------------------------------------------------------------
  const query = new URLSearchParams(location.search);
  const asked = query.get("language") ?? query.get("lang");
  const own = (navigator.language || "en").slice(0, 2);
  const start = [asked, kept.read("leadline-language"), own].find((code) => Object.hasOwn(data.languages, code)) ?? "en";
  if (start !== "en") speak(start);
  sift();
  reveal();
  locate();
})();
