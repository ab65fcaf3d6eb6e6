"""gen view in a browser: what a person sees and does; every line of every package has its fragment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import started_browser, webdriver
from conftest import Files, Workshop, weave_files
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from whole import whole_packages

from generator.commands.causes import group_changes
from generator.disk.built import MappedPackage, find_built_packages
from generator.disk.lock import MAP
from generator.disk.project import Project, builtin_root

HOSTILE = "</script><script>document.title = 'taken'</script>"
PAGES = [
    "index.html",
    "package/llama2_tpu.html",
    "code/model.py/llama2_tpu.html#L30",
    "source/model/rope.html",
    "compare.html?a=llama2_tpu&b=llama3_tpu",
    "search.html?q=rope",
    "modularity.html",
]
# text of each line, with column, source and line of its parts; ids of lines with another name beside them than that of
# the first part's source
NAMED = "const named = (line) => originsOf(line).map(([at, source, from]) => [at, site.sources[source][0], from]);"
LINES = f"""{NAMED}
const beside = (line) => line.closest(".s").querySelector("a").textContent;
return [all.map((line, k) => [line.textContent.replace(/\\n$/, ""), named(lines[k])]),
    all.filter((line, k) => beside(line) !== site.sources[lines[k][2]][1]).map((line) => line.id)];
"""
CONTENTS = f"""{NAMED}
return Object.fromEntries(Object.keys(site.files).map((path) => [path, contents(path, arguments[0]).map(
    (line) => [line[0], named(line)])]));
"""
# differences as `group_changes` returns them
DIFFERENCES = """
const name = (source) => source < 0 || site.sources[source][0].endsWith(".jinja") ? "" : site.sources[source][0];
return compare(...arguments).flatMap(([source, pieces]) => pieces.flatMap(({ path, whole, numbers }) => [0, 1].flatMap(
    (side) => numbers[side].map((k) => [name(source), path, "-+"[side], k + 1, whole[side][k][0]]))));
"""


class Site:
    """A site and a browser that shows it."""

    def __init__(self, folder: Path, driver):
        self.folder, self.driver = folder, driver

    def open(self, page: str) -> None:
        self.driver.get("about:blank")  # else a page that differs only in its fragment is not loaded
        self.driver.get(f"{self.folder.as_uri()}/{page}")
        assert [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"] == []

    def wait_for(self, part: str) -> None:
        """Waits for a page with this in its address."""
        loaded = "return document.readyState === 'complete' && location.href.includes(arguments[0])"
        WebDriverWait(self.driver, 30).until(lambda driver: driver.execute_script(loaded, part))

    def run(self, script: str, *arguments: object):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def emulate(self, width: int, scheme: str) -> None:
        size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="module")
def driver():
    with started_browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The site of the packages of this repository, whole."""
    made = tmp_path_factory.mktemp("view") / "site"
    command = [sys.executable, "-m", "generator", "view", "--out", str(made)]
    subprocess.run(command, check=True, cwd=whole_packages(), env=os.environ | {"PYTHONPATH": str(builtin_root())})
    return made


@pytest.fixture(scope="module")
def packages() -> list[MappedPackage]:
    return find_built_packages(Project.find(whole_packages()))


@pytest.fixture
def site(folder, driver) -> Site:
    made = Site(folder, driver)
    made.emulate(1300, "light")
    return made


def expected(package: MappedPackage, path: str) -> list[tuple[str, list]]:
    """The lines of a file with their origins, by the package's map; the template, and no line, where there is none."""
    lines, mapped = package.read_lines(path), package.origins.get(path)
    if not mapped:
        (template,) = [name for name in package.lock.inputs if name.endswith(f"/{Path(path).name}.jinja")]
        mapped = [[(0, (template, 0))]] * len(lines)
    return [(line, [[column, *origin] for column, origin in parts]) for line, parts in zip(lines, mapped, strict=True)]


class TestEveryLine:
    @pytest.mark.slow
    def test_of_every_package_has_its_fragment(self, site, packages):
        site.open("compare.html")
        for number, package in enumerate(packages):
            found = site.run(CONTENTS, number)
            paths = [path for path in package.lock.outputs if path != MAP]
            assert {path for path, lines in found.items() if lines} == {p for p in paths if package.read_lines(p)}
            for path in paths:
                assert [tuple(line) for line in found[path]] == expected(package, path), f"{package.name}/{path}"

    @pytest.mark.parametrize("share", [20, pytest.param(1, marks=pytest.mark.slow)])
    def test_of_every_page_has_its_fragment(self, site, packages, share):
        """Each page is opened for the last of the packages that share it, whose own lines it must show; every 20th."""
        site.open("compare.html")
        index, named = site.run("return site.files"), {package.name: package for package in packages}
        names, last = list(named), {}
        for path, pages in index.items():
            last |= {(path, page): number for number, page in enumerate(pages) if page >= 0}
        assert len(last) == sum(1 for path in (site.folder / "code").rglob("*.html") if path.is_file())
        for (path, page), number in sorted(last.items())[::share]:
            site.driver.get(f"{site.folder.as_uri()}/code/{path}/{names[page]}.html?p={names[number]}")
            lines, unnamed = site.run(LINES)
            assert [tuple(line) for line in lines] == expected(named[names[number]], path), f"{names[number]}/{path}"
            assert unnamed == [], f"{names[number]}/{path}"


class TestLine:
    def test_pointing_at_one_shows_its_fragment(self, site):
        site.open("code/model.py/llama2_tpu.html")
        source = (builtin_root() / "fragments/model/rope.py").read_text().splitlines()
        texts = [text for text, _ in site.run(LINES)[0]], source
        row, number = (next(n for n, line in enumerate(lines, 1) if "def rotary_angles" in line) for lines in texts)
        line = site.find(f"#L{row}")
        site.run("arguments[0].scrollIntoView({ block: 'center' })", line)
        webdriver.ActionChains(site.driver).move_to_element(line).perform()
        panel = site.find("#panel").text
        assert f"Line {row}" in panel and f"model/rope line {number}\n" in panel
        assert "Rotary position embedding" in panel and "Su et al. 2021, arXiv 2104.09864" in panel
        site.find("#panel summary").click()
        assert "llama2_cpu" in site.find("#panel").text and "gpt2_tpu" not in site.find("#panel").text

    def test_arrow_keys_move_and_the_panel_is_read_aloud(self, site):
        site.open("code/model.py/llama2_tpu.html")
        code = site.find("#code")
        site.run("arguments[0].focus()", code)
        code.send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
        assert site.find("#code [aria-current]").get_attribute("id") == "L2"
        assert "Line 2" in site.find("#panel").text
        assert site.find("#panel").get_attribute("aria-live") == "polite"

    def test_link_to_a_line_of_a_fragment_and_back(self, site):
        site.open("code/model.py/llama2_tpu.html#L95")
        link = site.find("#panel dd a")
        name, target = link.text, link.get_attribute("href")
        link.click()
        site.wait_for(f"/source/{name}.html#L")
        assert site.driver.current_url == target and site.find("h1").text == name
        site.find(".places a[href*='model.py']").click()
        site.wait_for("/code/model.py/")
        assert site.find("#code [aria-current]").get_attribute("id") == site.driver.current_url.split("#")[1]

    def test_package_that_has_another_file_of_that_path(self, site):
        command = "python -m llama3_tpu.train --preset tiny"
        train = whole_packages() / "llama3_tpu/train.py"
        line = next(k for k, text in enumerate(train.read_text().splitlines(), 1) if command in text)
        site.open(f"code/train.py/llama2_cpu.html?p=llama3_tpu#L{line}")
        site.wait_for(f"/code/train.py/llama2_tpu.html?p=llama3_tpu#L{line}")
        assert command in site.find(f"#L{line}").text

    def test_the_first_link_skips_to_the_content(self, site):
        site.open("index.html")
        webdriver.ActionChains(site.driver).send_keys(Keys.TAB, Keys.ENTER).perform()
        assert site.run("return document.activeElement.id") == "main"


class TestCompare:
    @pytest.mark.parametrize(
        "pair",
        ["llama2_tpu llama3_tpu", "llama2_cpu llama2_gpu", "qwen3_moe_tpu deepseek_v3_tpu", "gpt2_tpu gpt2_tpu"],
    )
    def test_is_what_gen_diff_finds(self, site, packages, pair):
        names, (one, two) = [package.name for package in packages], pair.split()
        left, right = (packages[names.index(name)] for name in (one, two))
        differences = [
            [cause.source, piece.path, sign, number, text]
            for cause in group_changes(left, right)
            for piece in cause.pieces
            for sign, lines in (("-", piece.removed), ("+", piece.added))
            for number, text in lines
        ]
        site.open("compare.html")
        assert sorted(site.run(DIFFERENCES, names.index(one), names.index(two))) == sorted(differences)
        assert bool(differences) == (one != two)

    def test_two_are_chosen_and_shown_side_by_side(self, site):
        site.open("compare.html")
        for key, name in (("a", "llama2_tpu"), ("b", "llama3_tpu")):
            site.find(f"select[name={key}]").send_keys(name)
        site.find("#pick button").click()
        site.wait_for("?a=llama2_tpu&b=llama3_tpu")
        assert "make llama2_tpu and llama3_tpu differ" in site.find("#status").text
        cause = site.find("[data-source='fragments/model/rope_llama3.py']")
        site.run("document.querySelectorAll('details').forEach((block) => (block.open = true))")
        assert re.search(r"0 lines left, \d+ right", cause.text) and "llama3_tpu/model.py" in cause.text
        assert cause.find_elements(By.CSS_SELECTOR, ".more") and not cause.find_elements(By.CSS_SELECTOR, ".less")
        left, right = site.find(".sides").find_elements(By.CSS_SELECTOR, ":scope > div")
        assert left.rect["y"] == right.rect["y"] and left.rect["x"] < right.rect["x"]

    def test_unknown_package(self, site):
        site.open("compare.html?a=llama2_tpu&b=nothing")
        assert "no such package" in site.find("#status").text


class TestSearch:
    def look_for(self, site: Site, words: str) -> str:
        site.open("package/llama2_tpu.html")
        site.find("#q").send_keys(words, Keys.ENTER)
        site.wait_for("search.html?q=")
        return site.find("main").text

    def test_finds_fragments_files_packages_and_code(self, site):
        assert "model/rope_llama3" in self.look_for(site, "rope_llama3")
        assert "llama3_tpu/" in self.look_for(site, "rope_low_turns")
        assert "tests/test_rope.py" in self.look_for(site, "test_rope")
        assert "Su et al. 2021" in self.look_for(site, "2104.09864")
        assert "1 package," in self.look_for(site, "qwen2_tpu")

    def test_finds_every_line(self, site, packages):
        files = [(package, path) for package in packages for path in package.lock.outputs if path != MAP]
        lines = {line.strip() for package, path in files for line in package.read_lines(path) if "jnp.einsum" in line}
        self.look_for(site, "jnp.einsum")
        assert lines and {code.text for code in site.find_all(".hits code")} == lines

    @pytest.mark.parametrize("words", ["<b>no</b>", "nothing has this text", HOSTILE])
    def test_finds_nothing(self, site, words):
        assert "0 sources, 0 packages, 0 files, 0 lines" in self.look_for(site, words)
        assert site.driver.title == f"{words} - Search - gen view"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_fits_a_phone_and_both_schemes(site, page, scheme):
    site.emulate(360, scheme)
    site.open(page)
    assert site.run("return document.documentElement.scrollWidth") <= 360
    ink, paper = site.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
    brightness = [sum(map(int, colour[4:-1].split(","))) for colour in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light")
    assert abs(brightness[0] - brightness[1]) > 500  # of 765


def test_what_a_source_says_is_never_run(tmp_path, monkeypatch, driver):
    workshop = Workshop(tmp_path)
    monkeypatch.setattr("generator.disk.project.builtin_root", lambda: workshop.builtin)
    monkeypatch.chdir(workshop.root)
    name = "model/<img src=x onerror='document.title=1'>"
    workshop.source(f"fragments/{name}.py", f'"""{HOSTILE}.\n\nSource: {HOSTILE}.\n"""\n\nx = "{HOSTILE}"\n')
    path = workshop.builtin / "templates/architectures/plain.toml"
    path.write_text(path.read_text().replace('"model/attention"', f'"model/attention", "{name}"'))
    monkeypatch.setattr("generator.disk.project.Project.library", lambda project: Files(project.roots))
    monkeypatch.setattr("generator.commands.packages.weave_package", weave_files)
    workshop.build("plain_cpu", "llama_cpu")
    workshop.run("view", "--out", "site")
    site = Site(workshop.root / "site", driver)
    site.open("code/model.py/plain_cpu.html#L7")
    assert site.find("#L7").text == f'x = "{HOSTILE}"'
    assert HOSTILE in site.find("#panel").text and name in site.find("#panel").text
    pages = ["index.html", "modularity.html", "search.html?q=document", "compare.html?a=llama_cpu&b=plain_cpu"]
    for page in [*pages, "package/plain_cpu.html"]:
        site.open(page)
        assert "gen view" in site.driver.title and not site.find_all("img"), page
    site.open("index.html")
    site.driver.find_element(By.LINK_TEXT, name).click()
    site.wait_for("/source/")
    assert site.driver.title == f"{name} - gen view"
