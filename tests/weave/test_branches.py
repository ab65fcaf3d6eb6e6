"""Splices beside one that has other statements in one of its branches, as pages have for cached steps."""

from __future__ import annotations

import pytest
from miniature import refused, run, woven

HOST = 'def attend(q, k, cache):\n    with point("attend", q, k, cache):\n        y = q * k\n    return y\n'
PAGES = """
@splice("attend")
def _(q, k, y, cache):
    if cache is None:
        proceed()
    else:
        cache = cache + k
        with point("cached", q, cache):
            y = q * cache
"""
READS_LATE = {
    "a key": "    proceed()\n    y = y + k\n",
    "what is made of it": "    twice = 2 * k\n    more = twice + q\n    proceed()\n    y = y + more\n",
    "around the statements": "    with scope(k):\n        proceed()\n",
    "another choice": "    if q:\n        y = k\n    else:\n        proceed()\n",
    "a function": "    proceed()\n    y = sum(y + k for _ in range(1))\n",
}
READS_NOTHING_LATE = {
    "the result": "    proceed()\n    y = y + 1\n",
    "a query": "    proceed()\n    y = y + q\n",
    "a key before": "    k = k + 1\n    proceed()\n",
}


def own(body: str, order: str, more: str = "") -> str:
    return f'@splice("attend", {order}="pages")\ndef _(q, k, y):\n{body}{more}'


@pytest.mark.parametrize("body", READS_LATE.values(), ids=READS_LATE)
def test_what_goes_around_both_branches_reads_what_both_show(body):
    text = refused(host=HOST, pages=PAGES, own=own(body, "after"))
    assert "model/own reads k after the statements at fragments/model/host.py:2, and model/pages (" in text
    assert 'Write before="pages" here, and splice at cached for the other branch: it shows cache, q, y.' in text


@pytest.mark.parametrize("body", READS_NOTHING_LATE.values(), ids=READS_NOTHING_LATE)
def test_what_holds_in_both_branches_stays(body):
    assert woven(host=HOST, pages=PAGES, own=own(body, "after"))


def test_what_goes_into_one_branch_says_what_the_other_does():
    """As the two remedies say, one after the other: the splice of the other branch has what is attended there."""
    body, other = READS_LATE["a key"], '\n@splice("cached")\ndef _(cache, y):\n    proceed()\n    y = y + cache\n'
    text = refused(host=HOST, pages=PAGES, own=own(body, "before"))
    assert "model/own changes y in one branch of model/pages (" in text and "those of cached\n" in text
    assert "  Splice at cached too, which shows cache, q, y; with proceed() alone if nothing changes there." in text
    attend = run(woven(host=HOST, pages=PAGES, own=own(body, "before", other)))["attend"]
    assert (attend(2, 3, None), attend(2, 3, 10)) == (2 * 3 + 3, 2 * 13 + 13)
    nothing = '\n@splice("cached")\ndef _():\n    proceed()\n'
    attend = run(woven(host=HOST, pages=PAGES, own=own(body, "before", nothing)))["attend"]
    assert (attend(2, 3, None), attend(2, 3, 10)) == (2 * 3 + 3, 2 * 13)


def test_what_replaces_the_statements_goes_first():
    """In any order of selection, as it could stand nowhere else; it is inside the first branch as well."""
    replaced = '@splice("attend")\ndef _(q, k, y):\n    y = q - k\n\n@splice("cached")\ndef _():\n    proceed()\n'
    for order in ({"pages": PAGES, "own": replaced}, {"own": replaced, "pages": PAGES}):
        attend = run(woven(host=HOST, **order))["attend"]
        assert (attend(2, 3, None), attend(2, 3, 10)) == (2 - 3, 2 * 13)
