// The server's page in headless Chromium: an answer, an error, and an answer that is stopped.
//
// npm install puppeteer-core; CHROMIUM=/path/to/chromium node benchmarks/page.mjs http://127.0.0.1:8000/
//
// Of a model whose tokenizer has no chat template. Exit code 1 where the page does not do what it should.
import assert from "node:assert";
import { createRequire } from "node:module";

const puppeteer = createRequire(`${process.cwd()}/`)("puppeteer-core");
const address = process.argv[2];
const options = { executablePath: process.env.CHROMIUM, headless: "shell" };
const browser = await puppeteer.launch({ ...options, args: ["--no-sandbox", "--single-process", "--no-zygote"] });
try {
  const page = await browser.newPage();
  const elsewhere = [], failures = [];
  page.on("request", request => request.url().startsWith(address) || elsewhere.push(request.url()));
  page.on("pageerror", error => failures.push(String(error)));
  await page.goto(address);
  const set = (name, value) => page.$eval(`[name=${name}]`, (field, given) => { field.value = given; }, value);
  const told = () => page.$eval("pre", field => field.textContent);
  const go = () => page.click("button:not([name])");
  const ended = () => page.waitForFunction(() => document.forms[0].stop.disabled, { timeout: 60_000 });

  await set("prompt", "größer ");
  await set("max_tokens", 30);
  await go();
  await ended();
  assert((await told()).startsWith("größer ") && (await told()).length > 10, await told());

  await page.click("[name=chat]");
  await go();
  await ended();
  assert((await told()).includes("no chat template"), await told());

  await page.click("[name=chat]");
  await set("max_tokens", 400);
  await go();
  await page.waitForFunction(() => document.querySelector("pre").textContent.length > 10);
  await page.click("[name=stop]");
  await ended();
  const length = (await told()).length;
  await new Promise(resolve => setTimeout(resolve, 500));
  assert.equal((await told()).length, length);
  assert.deepEqual([elsewhere, failures], [[], []]);
  console.log(`an answer, an error, and one stopped after ${length} characters; nothing asked of another host`);
} finally {
  await browser.close();
}
