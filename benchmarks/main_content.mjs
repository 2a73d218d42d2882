// Runs an extractor of Node.js for main_content.py: a page as one line of JSON in, its text as one line of JSON out.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [nodeModules, name] = process.argv.slice(2);
const require = createRequire(nodeModules + "/");
const load = async (path) => import(pathToFileURL(`${nodeModules}/${path}`));
console.log = console.debug = console.info = console.error; // Standard output carries the answers only.

async function extractor() {
  if (name === "defuddle") {
    const { Defuddle } = await load("defuddle/dist/node.js");
    const { parseHTML } = require("linkedom");
    return async (page) => (await Defuddle(parseHTML(page.html).document, page.url, { markdown: true })).content;
  }
  const { Readability } = require("@mozilla/readability");
  const { JSDOM } = require("jsdom");
  return async (page) => {
    const dom = new JSDOM(page.html, { url: page.url });
    const article = new Readability(dom.window.document).parse();
    dom.window.close();
    return article?.textContent;
  };
}

const extract = await extractor();
for await (const line of createInterface({ input: process.stdin })) {
  const text = await extract(JSON.parse(line)).catch(() => "");
  process.stdout.write(JSON.stringify(text ?? "") + "\n");
}
