// A server made with the official SDK as its guide has it: sessions in memory, JSON responses, no GET stream. After a
// restart it knows no session, and answers one with HTTP 400.

const http = require("node:http");
const { randomUUID } = require("node:crypto");
const { McpServer } = require("@modelcontextprotocol/sdk/server/mcp.js");
const { StreamableHTTPServerTransport } = require("@modelcontextprotocol/sdk/server/streamableHttp.js");
const { isInitializeRequest } = require("@modelcontextprotocol/sdk/types.js");

const sessions = new Map();

async function opened() {
  const server = new McpServer({ name: "forgetful", version: "1" });
  server.registerTool("where", {}, () => ({ content: [{ type: "text", text: String(process.pid) }] }));
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: true,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await server.connect(transport);
  return transport;
}

async function serve(request, response) {
  if (request.method !== "POST") {
    response.writeHead(405, { allow: "POST" }).end();
    return;
  }
  const parts = [];
  for await (const part of request) parts.push(part);
  const message = JSON.parse(Buffer.concat(parts).toString());
  const known = sessions.get(request.headers["mcp-session-id"]);
  const transport = known ?? (isInitializeRequest(message) ? await opened() : null);
  if (transport) {
    await transport.handleRequest(request, response, message);
    return;
  }
  const error = { code: -32000, message: "Bad Request: No valid session ID provided" };
  response.writeHead(400, { "content-type": "application/json" });
  response.end(JSON.stringify({ jsonrpc: "2.0", error, id: null }));
}

http.createServer(serve).listen(Number(process.env.PORT), "127.0.0.1");
