"use strict";
// The differences of two packages, by the fragment that causes them; lines are paired as `gen diff A B` pairs them.
const status = document.getElementById("status"), pick = document.getElementById("pick");
const AROUND = 2;

// the longest run of equal lines in parts of two files, the first of several: where in each, and how long
function longest(a, where, alo, ahi, blo, bhi) {
  let best = [alo, blo, 0], before = new Map();
  for (let i = alo; i < ahi; i++) {
    const lengths = new Map();
    for (const j of where.get(a[i]) || []) {
      if (j < blo || j >= bhi) continue;
      const size = (before.get(j - 1) || 0) + 1;
      lengths.set(j, size);
      if (size > best[2]) best = [i - size + 1, j - size + 1, size];
    }
    before = lengths;
  }
  return best;
}

function hunks(a, b) {
  const where = new Map(), ahead = [[0, a.length, 0, b.length]], equal = [[a.length, b.length, 0]], result = [];
  b.forEach((text, j) => (where.has(text) ? where.get(text).push(j) : where.set(text, [j])));
  while (ahead.length) {
    const [alo, ahi, blo, bhi] = ahead.pop(), [i, j, size] = longest(a, where, alo, ahi, blo, bhi);
    if (!size) continue;
    equal.push([i, j, size]);
    ahead.push([alo, i, blo, j], [i + size, ahi, j + size, bhi]);
  }
  let [i, j] = [0, 0];
  for (const [x, y, size] of equal.sort((p, q) => p[0] - q[0] || p[1] - q[1])) {
    if (i < x || j < y) result.push([i, x, j, y]);
    [i, j] = [x + size, y + size];
  }
  return result;
}

// for each line the source that only this side has in it, else that of its first character; -1 where it has none
function causes(these, others) {
  const pairs = (line) => originsOf(line).map(([, source, from]) => `${source}:${from}`);
  const shared = new Set(others.flatMap(pairs));
  return these.map((line) => parseInt(pairs(line).find((pair) => !shared.has(pair)) || pairs(line)[0] || "-1", 10));
}

const headerLength = (all) => Math.max(all.findIndex((line) => !line[0].startsWith("# ")), 0);

function plain(all, name) {
  return all.map(([text]) => text.replaceAll(name, "PACKAGE").replaceAll(name.replaceAll("_", "-"), "PACKAGE"));
}

// source -> its pieces: the path, and for each side where the hunk starts and the numbers of its lines
function compare(left, right) {
  const found = new Map();
  for (const path of Object.keys(site.files)) {
    const whole = [contents(path, left), contents(path, right)];
    const [a, b] = [left, right].map((number, side) => plain(whole[side], site.packages[number]));
    for (const [alo, ahi, blo, bhi] of hunks(a, b)) {
      const parts = [whole[0].slice(alo, ahi), whole[1].slice(blo, bhi)], pieces = new Map();
      [alo, blo].forEach((start, side) => {
        causes(parts[side], parts[1 - side]).forEach((source, k) => {
          if (start + k < headerLength(whole[side])) return;
          if (!pieces.has(source)) pieces.set(source, { path, whole, starts: [alo, blo], numbers: [[], []] });
          pieces.get(source).numbers[side].push(start + k);
        });
      });
      for (const [source, piece] of pieces) found.set(source, [...(found.get(source) || []), piece]);
    }
  }
  return [...found].sort(([x], [y]) => (x < 0) - (y < 0) || x - y);
}

function side(piece, which, number) {
  const all = piece.whole[which], changed = piece.numbers[which], start = piece.starts[which];
  const name = site.packages[number];
  const first = changed.length ? changed[0] : start;
  const shown = element("pre", { tabIndex: 0, role: "group", ariaLabel: `${name}, ${piece.path} from line ${first + 1}` });
  const sign = which ? "+" : "−";
  for (let k = Math.max(first - AROUND, 0); k < first; k++) {
    if (!changed.includes(k)) shown.append(element("span", { className: "around" }, `  ${all[k][0]}\n`));
  }
  for (const k of changed) shown.append(element("span", { className: which ? "more" : "less" }, `${sign} ${all[k][0]}\n`));
  if (site.files[piece.path][number] < 0) return element("div", {}, element("small", {}, `${name} has no ${piece.path}`));
  const link = { href: `${fileOf(piece.path, number)}#L${Math.min(first + 1, all.length)}` };
  const caption = element("small", {}, element("a", link, `${name}/${piece.path}:${first + 1}`));
  if (!changed.length) caption.append(" has nothing here");
  return element("div", {}, caption, shown);
}

function show(left, right) {
  const found = compare(left, right), box = document.getElementById("causes");
  const many = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
  let shown = 0;
  box.replaceChildren();
  for (const [source, pieces] of found) {
    const [less, more] = [0, 1].map((k) => pieces.reduce((sum, piece) => sum + piece.numbers[k].length, 0));
    const [path, name, title] = site.sources[source] || ["", "files that gen knows no template of", ""];
    const heading = element("h2", {}, element("span", { className: "tag" }, name));
    heading.style.setProperty("--h", source < 0 ? 0 : site.sources[source][4]);
    shown += less + more;
    const block = element("details", { className: "cause", open: shown < 400 });
    block.dataset.source = path;
    block.append(element("summary", {}, heading, ` ${many(less, "line")} left, ${more} right `, element("small", {}, title)));
    const fill = () => {
      if (!block.open || block.querySelector(".sides")) return;
      if (path) block.append(element("p", {}, tag(source, 0, `Open ${path}`)));
      for (const piece of pieces) {
        block.append(element("div", { className: "sides" }, side(piece, 0, left), side(piece, 1, right)));
      }
    };
    block.addEventListener("toggle", fill);
    fill();
    box.append(block);
  }
  status.textContent = found.length
    ? `${many(found.length, "fragment")} or other sources make ${site.packages[left]} and ${site.packages[right]} differ.`
    : `${site.packages[left]} and ${site.packages[right]} are the same.`;
}

const asked = new URLSearchParams(location.search), known = (key) => site.packages.indexOf(asked.get(key));
if (known("a") >= 0 && known("b") >= 0) {
  pick.elements.a.value = asked.get("a");
  pick.elements.b.value = asked.get("b");
  show(known("a"), known("b"));
} else if (asked.has("a") || asked.has("b")) {
  status.textContent = "There is no such package: choose two of the lists.";
} else if (site.packages.length > 1) {
  pick.elements.b.selectedIndex = 1;
}
