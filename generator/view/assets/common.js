"use strict";
// What the scripts of several pages need.
const site = LOOM.site, root = document.currentScript.dataset.root || "";

function element(name, attributes, ...children) {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...children);
  return made;
}

function address(path) {
  return root + path.split("/").map(encodeURIComponent).join("/") + ".html";
}

// the page of a file, for a package that has it
function fileOf(path, number) {
  const page = site.packages[site.files[path][number]], name = site.packages[number];
  return address(`code/${path}/${page}`) + (name === page ? "" : `?p=${name}`);
}

function tag(source, line, ...content) {
  const [, name, , , hue] = site.sources[source];
  const link = element("a", { className: "tag", href: address(`source/${name}`) + (line ? `#L${line}` : "") });
  link.style.setProperty("--h", hue);
  link.append(...(content.length ? content : [name]));
  return link;
}

// the architecture of a package stands where the page of the file has that of the package it is named after
function realSource(source, page, number) {
  return source === site.architectures[page] ? site.architectures[number] : source;
}

// a file of a package: its lines as [text, column, source, line, column, source, line, ...]; those without it have none
function contents(path, number) {
  const page = site.files[path][number];
  if (page < 0) return [];
  const { runs, own } = LOOM.files[path][site.packages[page]], result = [];
  for (let k = 0; k < runs.length; k += 2) result.push(...LOOM.lines.slice(runs[k], runs[k] + runs[k + 1]));
  if (page === number) return result;
  const mine = own[site.packages[number]] || {};
  return result.map(([text, ...origins], k) => [
    k + 1 in mine ? mine[k + 1] : text,
    ...origins.map((n, i) => (i % 3 === 1 ? realSource(n, page, number) : n)),
  ]);
}

// the origins of a line: the column where each starts, its source and the line there
function originsOf(line) {
  const result = [];
  for (let k = 1; k < line.length; k += 3) result.push(line.slice(k, k + 3));
  return result;
}
