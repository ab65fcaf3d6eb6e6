"""Reads a report as a browser does."""

import html.parser

from generator.language import requires

requires("report/report")


class Page(html.parser.HTMLParser):
    """The elements and the text of a page, which is complete, runs nothing and loads nothing."""

    def __init__(self, text: str):
        super().__init__()
        self.open = []
        self.attributes = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object", "embed", "base", "form", "a"), tag
        for name, value in attributes:
            assert not name.startswith("on") and "src" not in name and "href" not in name, name
            assert "http:" not in (value or "") and "https:" not in (value or "") and "url(" not in (value or ""), value
        self.attributes.append(dict(attributes))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        assert self.open[-1:] != ["style"] or ("url(" not in data and "@import" not in data)
        self.text += data
