// Behind a proxy that serves it below a path, over https: relative addresses, and wss.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { finish, heard, openPage, ready, serveScripted, state, words } from "./harness.mjs";

after(finish);

const PREFIX = "/speech/v2";

test("it works below a path and over https", async (t) => {
  const proxy = await proxyTo(t, new URL(await serveScripted()));
  const page = await openPage(t, proxy, { path: `${PREFIX.slice(1)}/`, ignoreHTTPSErrors: true });
  const sockets = [];
  page.on("websocket", (socket) => sockets.push(socket.url()));
  await ready(page);
  await page.fill("#text", "Far from the root.");
  await page.click("#speak");
  await state(page, "done");
  assert.ok((await heard(page)).audible > 10_000);
  const place = `${proxy}${PREFIX.slice(1)}`;
  assert.deepEqual(sockets, [`${place.replace("https", "wss")}/v1/audio/speech-stream`]);
  assert.ok((await words(page, "snippet-code")).includes(`'${place}/v1/audio/speech'`));
});

/** What nginx does with `location PREFIX/ { proxy_pass http://server/; }`. */
async function proxyTo(t, target) {
  const options = { host: target.hostname, port: target.port };
  const inner = (path) => (path.startsWith(`${PREFIX}/`) ? path.slice(PREFIX.length) : null);
  const server = https.createServer(await certificate(t), (request, response) => {
    const path = inner(request.url);
    if (path === null) {
      response.writeHead(404).end();
      return;
    }
    const { method, headers } = request;
    const onward = http.request({ ...options, method, headers, path }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(onward);
  });
  server.on("upgrade", (request, socket, head) => {
    const upstream = net.connect(options, () => {
      const headers = request.rawHeaders.map((word, i) => word + (i % 2 ? "\r\n" : ": ")).join("");
      upstream.write(`GET ${inner(request.url)} HTTP/1.1\r\n${headers}\r\n`);
      upstream.write(head);
      socket.pipe(upstream).pipe(socket);
    });
    const both = [socket, upstream];
    for (const end of both) end.on("error", () => both.forEach((other) => other.destroy()));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `https://127.0.0.1:${server.address().port}/`;
}

async function certificate(t) {
  const folder = await mkdtemp(join(tmpdir(), "phonate-tls-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => join(folder, name));
  await promisify(execFile)("openssl", [
    "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
    "-keyout", key, "-out", cert,
  ]); // prettier-ignore
  return { key: await readFile(key), cert: await readFile(cert) };
}
