// Serves the page on loopback, without a bundler: node serve.mjs [PORT] [FOLDER]
//
// FOLDER has `node_modules` and `gen`, as `npm ci` and `npm run generate` make them in clients/typescript. Node itself
// takes the types out of TypeScript (22.18 or newer), and an import map says where the packages are.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { stripTypeScriptTypes } from "node:module";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [port = "5173", folder = join(here, "../../../clients/typescript")] = process.argv.slice(2);
const types = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".ts": "text/javascript", ".json": "application/json" };

const server = createServer(async (request, response) => {
  try {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname));
    const base = /^\/(node_modules|gen)\//.test(path) ? folder : here;
    const name = path === "/" ? "/page.html" : path;
    const text = await readFile(join(base, name));
    const type = types[extname(name)] ?? "application/octet-stream";
    response.writeHead(200, { "content-type": `${type}; charset=utf-8`, "cache-control": "no-store" });
    response.end(extname(name) === ".ts" ? stripTypeScriptTypes(text.toString()) : text);
  } catch {
    response.writeHead(404).end("not here\n");
  }
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
