// What stands around a user's code in node: `node --expose-internals harness.mjs ROOM PLAYWRIGHT`.
//
// It runs ROOM/code.js with `page`, `context` and `browser`, with `await` and `return` at the top. The value of the last
// expression goes to ROOM/value and the message of what was thrown to ROOM/error, so that neither mixes with what the
// code prints. node's own parser finds that expression; V8 alone judges whether the code is valid.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { inspect, stripVTControlCharacters } from "node:util";
import vm from "node:vm";

const NAME = "code.js";
// On the code's first line: lines keep their numbers, and columnOffset gives the columns back.
const BEFORE = "(async () => {";
const AFTER = "\n})()";

const [room, playwrightFolder] = process.argv.splice(2);
const inside = createRequire(import.meta.url);
const playwright = inside(path.join(playwrightFolder, "index.js"));
const code = readFileSync(path.join(room, NAME), "utf8");
const lines = code.split("\n").length;
let ending = false;
// What is put before the last expression, and where: columns behind it on that line are counted without it.
const RETURN = "return (";
let returned = { line: 0, column: 0 };

function write(name, text) {
  try {
    writeFileSync(path.join(room, name), text);
  } catch {
    // The code removed its own folder.
  }
}

/** Ends the process when what was printed is out; `process.exit` alone would lose it. */
function end(status) {
  if (ending) return;
  ending = true;
  let left = 2;
  const next = () => --left || process.exit(status);
  process.stdout.write("", next);
  process.stderr.write("", next);
}

/** Says what was thrown: its message for the answer, and with it the lines of the code for stderr. */
function fail(thrown) {
  let message;
  if (thrown instanceof Error || (thrown && typeof thrown.stack === "string")) {
    message = `${thrown.name || "Error"}: ${thrown.message}`;
  } else {
    message = `Uncaught ${inspect(thrown)}`;
  }
  const stack = String(thrown?.stack ?? "").split("\n");
  const frames = stack.map(ownFrame).filter(Boolean);
  // V8 begins the stack of a syntax error with its line.
  const at = thrown instanceof SyntaxError && /^code\.js:\d+$/.test(stack[0]) ? stack[0] : "";
  write("error", stripVTControlCharacters(at ? `${message} (${at})` : message).trim());
  process.stderr.write([stripVTControlCharacters(message).trim(), ...(at ? [`    at ${at}`] : frames)].join("\n") + "\n");
  end(process.exitCode || 1);
}

/** A line of a stack as its reader knows the code; nothing for what is not of the code. */
function ownFrame(text) {
  const [, before, line, column, after] = /^(\s+at .*\bcode\.js):(\d+):(\d+)(.*)$/.exec(text) ?? [];
  // Below the last line of the code stands our own bracket.
  if (!line || line > lines) return "";
  const moved = Number(line) === returned.line && column > returned.column + RETURN.length;
  return `${before}:${line}:${moved ? column - RETURN.length : column}${after}`;
}

/** The code as one expression of V8's, whose value is a promise of the last expression's. */
function wrap() {
  let body;
  try {
    const { parse } = inside("internal/deps/acorn/acorn/dist/acorn");
    const program = parse(BEFORE + code + AFTER, { ecmaVersion: "latest", allowImportExportEverywhere: true });
    // More than one statement: the code closed our bracket.
    if (program.body.length === 1) body = program.body[0].expression.callee.body.body;
  } catch {
    // It is not valid, or newer than this parser: then there is no value.
  }
  let text = BEFORE + code + AFTER;
  for (const statement of (body ?? []).toReversed()) {
    const own = text.slice(statement.start, statement.end);
    let by = own;
    if (statement.type === "ImportDeclaration") by = imported(statement, own);
    else if (statement === body.at(-1) && statement.type === "ExpressionStatement") {
      // The bracket comes on a line of its own, for a comment may stand before a semicolon.
      by = `${RETURN}${own.replace(/;$/, "")}\n)`;
      const before = text.slice(BEFORE.length, statement.start).split("\n");
      returned = { line: before.length, column: before.at(-1).length };
    }
    text = text.slice(0, statement.start) + by + text.slice(statement.end);
  }
  return text;
}

/** An import statement as what a function may contain, of as many lines. */
function imported(statement, own) {
  const key = (node) => (node.type === "Literal" ? node.raw : node.name);
  const names = statement.specifiers.map((one) => {
    if (one.type === "ImportDefaultSpecifier") return `default: ${one.local.name}`;
    return one.type === "ImportSpecifier" ? `${key(one.imported)}: ${one.local.name}` : "";
  });
  const whole = statement.specifiers.find((one) => one.type === "ImportNamespaceSpecifier");
  const given = (statement.attributes ?? []).map((one) => `${key(one.key)}: ${one.value.raw}`);
  const options = given.length ? `, { with: { ${given.join(", ")} } }` : "";
  const module = `await import(${statement.source.raw}${options})`;
  const parts = names.filter(Boolean).join(", ");
  let by = module;
  if (whole) by = `const ${whole.local.name} = ${module}` + (parts ? `, { ${parts} } = ${whole.local.name}` : "");
  else if (parts) by = `const { ${parts} } = ${module}`;
  return `${by};${"\n".repeat(own.split("\n").length - 1)}`;
}

/** A value as text: strings as they are, other things as JSON; nothing for undefined. */
function told(value) {
  if (value === undefined || typeof value === "string") return value;
  // A page, a response, a locator: what they hold is Playwright's own business.
  if (value?._channel || value?._connection) return `[${value.constructor.name.replace(/^_/, "")}]`;
  try {
    return JSON.stringify(value) ?? inspect(value);
  } catch {
    return inspect(value);
  }
}

/** The page of the code: the one whose target is named, the last one where that is gone, a new one where none is. */
async function choosePage(context, target) {
  const pages = context.pages();
  if (pages.length > 1 && target) {
    for (const page of pages) {
      const session = await context.newCDPSession(page);
      const { targetInfo } = await session.send("Target.getTargetInfo");
      await session.detach();
      if (targetInfo.targetId === target) return page;
    }
  }
  return pages.at(-1) ?? (await context.newPage());
}

async function main() {
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
  // Compiled before the browser is asked for anything: what is not valid is known at once.
  const script = new vm.Script(wrap(), {
    filename: NAME,
    columnOffset: -BEFORE.length,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  const browser = await playwright.chromium.connectOverCDP(process.env.CDP_URL);
  const context = browser.contexts()[0] ?? (await browser.newContext());
  const page = await choosePage(context, readFileSync(path.join(room, "page"), "utf8"));
  const outside = createRequire(path.join(process.cwd(), NAME));
  const require = (name) => (/^playwright(-core)?$/.test(name) ? playwright : outside(name));
  // As globals and not as names of our function: the code may declare a `page` of its own.
  Object.assign(globalThis, { page, context, browser, playwright, require });
  const value = told(await script.runInThisContext());
  if (value !== undefined) write("value", value);
  // Rejections that nobody waits for are told after this turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
  // The pages stay: the browser is left, not closed.
  end(process.exitCode || 0);
}

main().catch(fail);
