/** The same request as curl, Python and JavaScript, ready to be copied. Never with the key itself. */

import { byId } from "./dom.js";

const VARIABLE = "PHONATE_API_KEY";

/** For sh: in single quotes nothing but the quote itself means anything. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function curl({ url, body, file, needsKey }) {
  return [
    `curl ${quoted(url)}`,
    ...(needsKey ? [`-H "Authorization: Bearer $${VARIABLE}"`] : []),
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(JSON.stringify(body))}`,
    `-o ${file}`,
  ].join(" \\\n  ");
}

/** JSON's strings and numbers are Python's too. */
function python({ base, body, file, needsKey }) {
  const { input, voice, response_format: format, speed, ...own } = body;
  const known = { model: "tts-1", voice: voice ?? "default", input, response_format: format, speed };
  const lines = Object.entries(known)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `    ${name}=${JSON.stringify(value)},`);
  if (Object.keys(own).length) lines.push(`    extra_body=${JSON.stringify(own)},`);
  return [
    ...(needsKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(base)}, ` +
      `api_key=${needsKey ? `os.environ["${VARIABLE}"]` : '"none"'})`,
    "with client.audio.speech.with_streaming_response.create(",
    ...lines,
    ") as speech:",
    `    speech.stream_to_file(${JSON.stringify(file)})`,
  ].join("\n");
}

function javascript({ url, body, file, needsKey }) {
  const headers = [
    ...(needsKey ? [`    Authorization: \`Bearer \${process.env.${VARIABLE}}\`,`] : []),
    `    "Content-Type": "application/json",`,
  ];
  const fields = JSON.stringify(body, null, 2).replaceAll("\n", "\n  ");
  return [
    `import { writeFile } from "node:fs/promises";`,
    "",
    `const answer = await fetch(${JSON.stringify(url)}, {`,
    `  method: "POST",`,
    "  headers: {",
    ...headers,
    "  },",
    `  body: JSON.stringify(${fields}),`,
    "});",
    "if (!answer.ok) throw new Error((await answer.json()).error.message);",
    `await writeFile(${JSON.stringify(file)}, Buffer.from(await answer.arrayBuffer()));`,
  ].join("\n");
}

const WRITERS = { curl, python, javascript };

export class Snippets {
  #writer = "curl";

  constructor(server, composer) {
    this.server = server;
    this.composer = composer;
    this.tabs = Object.keys(WRITERS).map((name) => byId(`tab-${name}`));
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.#choose(tab));
      tab.addEventListener("keydown", (event) => this.#onKey(event, tab));
    }
    byId("copy").addEventListener("click", () => this.#copy());
    composer.addEventListener("change", () => this.show());
  }

  show() {
    const { request, format } = this.composer;
    const { input, ...others } = request;
    const file = `speech.${format === "opus" ? "ogg" : format || "mp3"}`;
    const body = { input, ...others, response_format: format || "mp3" };
    byId("snippet-code").textContent = WRITERS[this.#writer]({
      url: this.server.url("v1/audio/speech"),
      base: this.server.url("v1"),
      body,
      file,
      needsKey: this.server.needsKey,
    });
  }

  #choose(chosen) {
    this.#writer = chosen.id.replace("tab-", "");
    for (const tab of this.tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
    }
    byId("snippet").setAttribute("aria-labelledby", chosen.id);
    this.show();
  }

  #onKey(event, tab) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = this.tabs.at((this.tabs.indexOf(tab) + step) % this.tabs.length);
    next.focus();
    this.#choose(next);
  }

  async #copy() {
    const code = byId("snippet-code");
    let words = "Copied";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // Not allowed, or not over https: mark it, so that one key press copies it.
      getSelection().selectAllChildren(code);
      words = "Marked: press Ctrl + C";
    }
    byId("copy").textContent = words;
    byId("copy-words").textContent = words;
    setTimeout(() => {
      byId("copy").textContent = "Copy";
      byId("copy-words").textContent = "";
    }, 2_000);
  }
}
