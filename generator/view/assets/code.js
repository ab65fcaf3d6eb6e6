"use strict";
// Says of the line under the pointer, or of the one that the arrow keys are at, where it came from.
const data = JSON.parse(document.getElementById("data").textContent);
const code = document.getElementById("code"), panel = document.getElementById("panel");
const files = site.files[data.path], page = site.packages.indexOf(data.page);
const asked = site.packages.indexOf(new URLSearchParams(location.search).get("p"));
const current = asked >= 0 && files[asked] === page ? asked : page;
const all = [...code.querySelectorAll("li")];
let at = null;

code.querySelectorAll("ol").forEach((list) => list.removeAttribute("id"));
all.forEach((line, k) => (line.id = `L${k + 1}`));

// the last run that starts at this line or above it
const runAt = (runs, line) => runs.findLast((run) => run[0] <= line);

function originsOf(line, number) {
  if (data.more[number]) return data.more[number].map(([column, source, from]) => [column, realSource(source, page, current), from]);
  const source = line.closest(".s").dataset.s;
  if (source === undefined) return [];
  const [first, from] = runAt(data.from, number);
  return [[0, realSource(+source, page, current), from && from + number - first]];
}

function show(line) {
  const number = +line.id.slice(1), origins = originsOf(line, number), list = element("dl"), told = new Set();
  const tell = (term, ...what) => list.append(element("dt", {}, term), element("dd", {}, ...what));
  for (const [column, source, from] of origins) {
    tell(column ? `from column ${column + 1}` : origins.length > 1 ? "from the start" : "fragment", tag(source, from), from ? ` line ${from}` : " as a whole");
    const [, , title, citation] = site.sources[source];
    if (told.has(source)) continue;
    told.add(source);
    if (title) tell("feature", title);
    if (citation) tell("source", citation);
  }
  if (!origins.length) tell("fragment", "none: written since the build, or of a file that gen knows no template of");
  const bits = BigInt(`0x${data.sets[runAt(data.in, number)[1]]}`);
  const others = site.packages.map((name, k) => k).filter((k) => k !== current && (bits >> BigInt(k)) & 1n);
  const links = others.flatMap((k) => [element("a", { href: fileOf(data.path, k) }, site.packages[k]), " "]);
  if (others.length > 6) {
    tell("also in", element("details", {}, element("summary", {}, `${others.length} other packages`), ...links));
  } else {
    tell("also in", ...(others.length ? links : ["no other package"]));
  }
  panel.replaceChildren(element("h2", {}, `Line ${number}`), list);
}

function select(line, scroll) {
  if (!line || !line.id) return;
  if (at) {
    at.classList.remove("at");
    at.removeAttribute("aria-current");
  }
  at = line;
  at.classList.add("at");
  at.setAttribute("aria-current", "true");
  if (scroll) at.scrollIntoView({ block: "nearest" });
  show(at);
}

function lineOf(event) {
  return event.target.closest && event.target.closest("#code li");
}

code.addEventListener("pointerover", (event) => {
  if (event.pointerType === "mouse" && lineOf(event)) show(lineOf(event));
});
code.addEventListener("click", (event) => {
  const line = lineOf(event);
  if (!line) return;
  select(line);
  history.replaceState(null, "", `#${line.id}`);
});
code.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  select(at ? document.getElementById(`L${+at.id.slice(1) + step}`) : all[0], true);
});
const go = () => select(document.getElementById(location.hash.slice(1)), true);
addEventListener("hashchange", go);

if (asked >= 0 && files[asked] >= 0 && files[asked] !== page) {
  location.replace(fileOf(data.path, asked) + location.hash); // the package has the file, but another one
} else if (current !== page) {
  const name = site.packages[current], link = document.getElementById("package");
  document.title = document.title.replace(data.page, name);
  link.textContent = name;
  link.href = address(`package/${name}`);
  for (const stretch of code.querySelectorAll(`.s[data-s="${site.architectures[page]}"]`)) {
    const source = site.architectures[current], label = tag(source);
    label.className = "";
    stretch.querySelector("a").replaceWith(label);
    stretch.style.setProperty("--h", site.sources[source][4]);
  }
  for (const [number, text] of Object.entries(data.own[name] || {})) {
    const line = all[number - 1], mark = line.firstElementChild;
    const whole = mark && mark.textContent.length + 1 === line.textContent.length; // a comment or a docstring
    if (whole) mark.textContent = text;
    else line.textContent = `${text}\n`;
  }
}
go();
