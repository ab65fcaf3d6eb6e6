"""The server's page in a browser: what it shows is what the API answers, and conversations outlive the page."""

from __future__ import annotations

import json

import pytest
from browser import started_browser
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from tokenizers import Tokenizer

from robustness.serving import SPECIAL, TEMPLATE, answer, request, save_model, served

pytest.importorskip("starlette", reason="needs starlette and uvicorn: pip install '.[serve]'")


@pytest.fixture(scope="module")
def driver(server):
    with started_browser() as driver:
        driver.get(f"http://127.0.0.1:{server[1]}/")
        yield driver


def find(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


def articles(driver):
    found = driver.find_elements(By.CSS_SELECTOR, "article")
    return [(article.get_attribute("class"), article.get_attribute("textContent")) for article in found]


def say(driver, text, **boxes):
    """Sends a text at temperature 0, and waits for the end of what comes back."""
    driver.execute_script("document.querySelector('form').temperature.value = 0")
    for name, checked in boxes.items():
        if find(driver, f"[name={name}]").is_selected() != checked:
            find(driver, f"[name={name}]").click()
    find(driver, "textarea").send_keys(text)
    find(driver, "form button").click()
    ended = "return form.prompt.value !== arguments[0] && form.stop.disabled"
    WebDriverWait(driver, 60).until(lambda _: driver.execute_script(ended, text))


def asked(server, path, **fields):
    body = {"max_tokens": 200, "temperature": 0} | fields
    return json.loads(answer(server[1], request(path, json.dumps(body).encode())).partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("logprobs", [False, True], ids=["text", "probabilities"])
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_it_shows_what_the_server_answers(driver, server, chat, logprobs):
    find(driver, "[name=new]").click()
    said = []
    for text in ("<b>a</b> text to go on with", "more"):
        said.append(text)
        say(driver, text, chat=chat, logprobs=logprobs)
        if chat:
            messages = [{"role": ("user", "assistant")[at % 2], "content": x} for at, x in enumerate(said)]
            said.append(asked(server, "/v1/chat/completions", messages=messages)["choices"][0]["message"]["content"])
        else:
            said.append(asked(server, "/v1/completions", prompt="".join(said))["choices"][0]["text"])
    shown = articles(driver)
    assert [kind for kind, _ in shown] == ["user", "assistant"] * 2
    if not logprobs:  # else what ends a turn, and special tokens, are shown too
        assert [text for _, text in shown] == said
    driver.refresh()
    assert articles(driver) == shown
    assert not [entry for entry in driver.get_log("browser") if "favicon" not in entry["message"]]


def test_what_is_refused_comes_back_to_be_changed(driver):
    find(driver, "[name=new]").click()
    driver.execute_script("form.prompt.value = 'x'.repeat(9000)")
    find(driver, "form button").click()
    WebDriverWait(driver, 60).until(lambda _: find(driver, "article.error"))
    assert [kind for kind, _ in articles(driver)] == ["error"] and "context length" in articles(driver)[0][1]
    assert find(driver, "textarea").get_attribute("value") == "x" * 9000


@pytest.mark.parametrize("kept", ["{", "1", '{"turns": []}', "[null]", '[{"turns": [{"role": "user"}]}]'])
def test_what_is_kept_may_be_anything(driver, kept):
    driver.execute_script("localStorage.setItem(KEPT, arguments[0])", kept)
    driver.refresh()
    say(driver, "a", chat=True, logprobs=False)
    assert [kind for kind, _ in articles(driver)] == ["user", "assistant"]


def test_what_is_deleted_while_it_is_answered_does_not_come_back(driver):
    find(driver, "[name=new]").click()
    kept = "return localStorage.getItem(KEPT)"
    before = driver.execute_script(kept)
    driver.execute_script("document.querySelector('form').max_tokens.value = 3000")
    find(driver, "textarea").send_keys("b")
    find(driver, "form button").click()
    WebDriverWait(driver, 60).until(lambda _: len(articles(driver)) == 2 and articles(driver)[1][1])
    find(driver, "[name=delete]").click()
    WebDriverWait(driver, 60).until(lambda _: driver.execute_script("return form.stop.disabled"))
    assert driver.execute_script(kept) == before


@pytest.fixture
def thinking(server, tmp_path):
    """A server whose chats begin with thoughts, which one of the tokens that its model says to `a` ends."""
    folder = tmp_path / "hf"
    save_model(folder)
    path = folder / "tokenizer.json"
    prompt = "<s>user\na</s>\n<s>assistant\n<think>"
    ids = Tokenizer.from_file(str(path)).encode(prompt, add_special_tokens=False).ids
    said = asked(server, "/v1/completions", prompt=ids, return_token_ids=True)["choices"][0]["token_ids"]
    names = json.loads(path.read_text())
    end = next(x for x in names["added_tokens"] if x["id"] in said[5:] and x["id"] not in said[:5])
    assert end["content"] in SPECIAL[2:]
    end["content"] = "</think>"
    path.write_text(json.dumps(names))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": TEMPLATE + "<think>{# </think> #}"}))
    with served(folder) as found:
        yield found


def test_thoughts_are_above_the_answer(driver, thinking):
    """Closed, as text, also after the page is loaded again; where probabilities are shown, among the tokens."""
    driver.get(f"http://127.0.0.1:{thinking[1]}/")
    messages = [{"role": "user", "content": "a"}]
    message = asked(thinking, "/v1/chat/completions", messages=messages)["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"]
    say(driver, "a", chat=True, logprobs=False)
    parts = "return [...arguments[0].childNodes].map(x => [x.nodeName, x.textContent]).filter(x => x[1])"
    wanted = [["DETAILS", "thoughts" + message["reasoning_content"]], ["#text", message["content"]]]
    for _ in range(2):
        driver.execute_script("document.querySelector('article.assistant').normalize()")
        assert driver.execute_script(parts, find(driver, "article.assistant")) == wanted
        assert find(driver, "article details").get_attribute("open") is None
        assert driver.execute_script("return document.querySelector('article summary').nextSibling.nodeName") == "#text"
        driver.refresh()
    find(driver, "[name=new]").click()
    say(driver, "a", chat=True, logprobs=True)
    assert not driver.find_elements(By.CSS_SELECTOR, "article details")
    assert "</think>" in articles(driver)[1][1]
