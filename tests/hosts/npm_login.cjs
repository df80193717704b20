// A program with the OAuth client of the SDK for TypeScript: it logs in when it starts, then makes calls.
//
// npm_login.cjs URL        (NODE_PATH says where the SDK is installed, BROWSER what opens an address)
//
// Each line that it reads is {"tool", "arguments"}; "renew" says that the access token is to be refused before. For each
// it writes a line: the result, or {"error"}. The line before them says that it has logged in.

const { execFile } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const { once } = require("node:events");
const { createServer } = require("node:http");
const { createInterface } = require("node:readline");
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = require("@modelcontextprotocol/client");

const url = new URL(process.argv[2]);

/** What a log-in consists of, in memory. */
class LogIn {
  renewals = -1;

  constructor(redirectUrl) {
    this.redirectUrl = redirectUrl;
  }

  get clientMetadata() {
    return {
      client_name: "TypeScript SDK",
      redirect_uris: [this.redirectUrl],
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }

  state() {
    return (this.expected = randomUUID());
  }

  clientInformation() {
    return this.client;
  }

  saveClientInformation(client) {
    this.client = client;
  }

  tokens() {
    return this.saved;
  }

  saveTokens(tokens) {
    this.saved = tokens;
    this.renewals += 1;
  }

  codeVerifier() {
    return this.verifier;
  }

  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }

  discoveryState() {
    return this.discovered;
  }

  saveDiscoveryState(state) {
    this.discovered = state;
  }

  redirectToAuthorization(address) {
    execFile(process.env.BROWSER, [String(address)]);
  }

  invalidateCredentials(scope) {
    if (scope === "all" || scope === "tokens") this.saved = undefined;
    if (scope === "all" || scope === "client") this.client = undefined;
    if (scope === "all" || scope === "discovery") this.discovered = undefined;
  }
}

/** Connect; without a log-in, wait for the browser to bring the answer first. */
async function connect(logIn, answers) {
  const begin = () => new StreamableHTTPClientTransport(url, { authProvider: logIn });
  const client = new Client({ name: "typescript-sdk", version: "1" });
  const first = begin();
  try {
    await client.connect(first);
    throw new Error("The hub let it in without a log-in");
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
  }
  const [request, response] = await once(answers, "request");
  const answer = new URL(request.url, logIn.redirectUrl).searchParams;
  response.end("Back to the program.");
  if (answer.get("state") !== logIn.expected) throw new Error("The answer is to another question");
  await first.finishAuth(answer);
  const loggedIn = new Client({ name: "typescript-sdk", version: "1" });
  await loggedIn.connect(begin());
  return loggedIn;
}

async function main() {
  const answers = createServer().listen(0, "127.0.0.1");
  await once(answers, "listening");
  const logIn = new LogIn(`http://127.0.0.1:${answers.address().port}/callback`);
  const client = await connect(logIn, answers);
  const write = (line) => process.stdout.write(JSON.stringify(line) + "\n");
  write({ tools: (await client.listTools()).tools.length });
  for await (const line of createInterface({ input: process.stdin })) {
    const { tool, arguments: given, renew } = JSON.parse(line);
    if (renew) logIn.saved = { ...logIn.saved, access_token: "refused" };
    try {
      const result = await client.callTool({ name: tool, arguments: given });
      write({ ...result, renewals: logIn.renewals });
    } catch (error) {
      write({ error: `${error.name}: ${error.message}` });
    }
  }
  process.exit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
