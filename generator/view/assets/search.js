"use strict";
// Looks for a text in sources, packages, files and in every line of every package.
const MOST = 200;
const query = (new URLSearchParams(location.search).get("q") || "").trim(), wanted = query.toLowerCase();
const status = document.getElementById("status"), found = document.getElementById("found");

function marked(text) {
  const start = text.toLowerCase().indexOf(wanted), end = start + wanted.length;
  return start < 0 ? [text] : [text.slice(0, start), element("mark", {}, text.slice(start, end)), text.slice(end)];
}

function list(title, items) {
  if (!items.length) return;
  const more = items.length > MOST ? ` (the first ${MOST} of ${items.length.toLocaleString("en")})` : "";
  found.append(element("h2", {}, title + more), element("ul", { className: "hits" }, ...items.slice(0, MOST)));
}

// the lines that have the text: each once for a source, with its first place and all packages that have it
function hits() {
  const result = new Map();
  for (const path of Object.keys(site.files)) {
    site.packages.forEach((name, number) => contents(path, number).forEach(([text, , source, line], k) => {
      if (!text.toLowerCase().includes(wanted)) return;
      const key = `${source} ${text.trim()}`, hit = result.get(key) || { text, source, line, path, number, k, packages: new Set() };
      result.set(key, hit);
      hit.packages.add(number);
    }));
  }
  const rank = ({ path }) => path.startsWith("tests/") + 2 * !path.endsWith(".py");
  return [...result.values()].sort((a, b) => rank(a) - rank(b));
}

if (wanted) {
  document.getElementById("q").value = query;
  document.title = `${query} - ${document.title}`;
  const has = (...texts) => texts.some((text) => text.toLowerCase().includes(wanted));
  const sources = [...site.sources.keys()].filter((k) => has(...site.sources[k].slice(0, 4)));
  const packages = site.packages.filter((name) => has(name)), paths = Object.keys(site.files).filter((path) => has(path));
  const code = hits();
  list("Fragments and other sources", sources.map((source) =>
    element("li", {}, tag(source, 0, ...marked(site.sources[source][1])), " ", ...marked(site.sources[source][2]), " ",
      element("small", {}, ...marked(site.sources[source][3])))));
  list("Packages", packages.map((name) => element("li", {}, element("a", { href: address(`package/${name}`) }, ...marked(name)))));
  list("Files", paths.map((path) => {
    const having = [...site.packages.keys()].filter((k) => site.files[path][k] >= 0);
    return element("li", {}, element("a", { href: fileOf(path, having[0]) }, ...marked(path)), ` in ${having.length} of the packages`);
  }));
  list("Lines of code", code.map(({ text, source, line, path, number, k, packages: having }) => {
    const place = `${site.packages[number]}/${path}:${k + 1}`;
    return element("li", {}, element("code", {}, ...marked(text.trim())), ...(source === undefined ? [] : [tag(source, line), " "]),
      element("a", { href: `${fileOf(path, number)}#L${k + 1}` }, place),
      having.size > 1 ? ` and ${having.size - 1} more package${having.size > 2 ? "s" : ""}` : "");
  }));
  const counts = [[sources, "source"], [packages, "package"], [paths, "file"], [code, "line"]];
  const told = counts.map(([all, what]) => `${all.length.toLocaleString("en")} ${what}${all.length === 1 ? "" : "s"}`);
  status.textContent = `“${query}”: ${told.join(", ")}.`;
}
