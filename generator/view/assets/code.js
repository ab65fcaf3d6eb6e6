"use strict";
// Says of the line under the pointer, or of the one that the arrow keys are at, where it came from.
const code = document.getElementById("code"), panel = document.getElementById("panel"), path = code.dataset.path;
const files = site.files[path], page = site.packages.indexOf(code.dataset.page);
const asked = site.packages.indexOf(new URLSearchParams(location.search).get("p"));
const current = asked >= 0 && files[asked] === page ? asked : page;
const all = [...code.querySelectorAll("li")], lines = contents(path, current);
let at = null;

code.querySelectorAll("ol").forEach((list) => list.removeAttribute("id"));
all.forEach((line, k) => (line.id = `L${k + 1}`));

// a line without what names the package that has it
function common([text, ...origins], number) {
  const name = site.packages[number], architecture = site.architectures[number];
  const words = [name, name.replaceAll("_", "-"), site.sources[architecture][1].replace(/.*\/|\.toml$/g, "")];
  const plain = words.reduce((rest, word) => rest.replaceAll(word, "\0"), text);
  return [plain, ...origins.map((n, i) => (i % 3 === 1 && n === architecture ? -1 : n))].join("\n");
}

const having = site.packages.map((name, k) => new Set(contents(path, k).map((line) => common(line, k))));

function show(line) {
  const number = +line.id.slice(1), origins = originsOf(lines[number - 1]), list = element("dl"), told = new Set();
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
  const key = common(lines[number - 1], current);
  const others = [...having.keys()].filter((k) => k !== current && having[k].has(key));
  const links = others.flatMap((k) => [element("a", { href: fileOf(path, k) }, site.packages[k]), " "]);
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
  location.replace(fileOf(path, asked) + location.hash); // the package has the file, but another one
} else if (current !== page) {
  const name = site.packages[current], link = document.getElementById("package");
  document.title = document.title.replace(code.dataset.page, name);
  link.textContent = name;
  link.href = address(`package/${name}`);
  for (const stretch of code.querySelectorAll(`.s[data-s="${site.architectures[page]}"]`)) {
    const source = site.architectures[current], label = tag(source);
    label.className = "";
    stretch.querySelector("a").replaceWith(label);
    stretch.style.setProperty("--h", site.sources[source][4]);
  }
  for (const [number, text] of Object.entries(LOOM.files[path][code.dataset.page].own[name] || {})) {
    const line = all[number - 1], mark = line.firstElementChild;
    const whole = mark && mark.textContent.length + 1 === line.textContent.length; // a comment or a docstring
    if (whole) mark.textContent = text;
    else line.textContent = `${text}\n`;
  }
}
go();
