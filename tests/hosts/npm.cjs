// The clients from npm as hosts; see `sdk.py`. NODE_PATH says where they are installed.
//
// npm.cjs URL PREFIX RESOURCE v1|v2|REVISION        (TOKEN in the environment)
//
// v1 is `@modelcontextprotocol/sdk`, all others are `@modelcontextprotocol/client`: v2 as it is made without options,
// a revision is what it insists on.

const [url, prefix, resource, which] = process.argv.slice(2);
const v1 = which === "v1";

const { Client, StreamableHTTPClientTransport } = v1
  ? {
      ...require("@modelcontextprotocol/sdk/client/index.js"),
      ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
    }
  : require("@modelcontextprotocol/client");

async function main() {
  const options = { capabilities: { elicitation: {}, sampling: {}, roots: {} } };
  if (!v1 && which !== "v2") options.versionNegotiation = { mode: { pin: which } };
  const client = new Client({ name: "npm-host", version: "1" }, options);
  const types = v1 ? require("@modelcontextprotocol/sdk/types.js") : {};
  const answer = (method, schema, result) => client.setRequestHandler(v1 ? types[schema] : method, async () => result);
  const person = { action: "accept", content: { username: "ada", email: "ada@example.org" } };
  answer("elicitation/create", "ElicitRequestSchema", person);
  const generated = { role: "assistant", content: { type: "text", text: "Paris" }, model: "m" };
  answer("sampling/createMessage", "CreateMessageRequestSchema", generated);
  answer("roots/list", "ListRootsRequestSchema", { roots: [{ uri: "file:///srv" }] });
  const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);

  const progress = [];
  const call = (name, args, options) =>
    v1
      ? client.callTool({ name: prefix + name, arguments: args }, undefined, options)
      : client.callTool({ name: prefix + name, arguments: args }, options);
  const { tools } = await client.listTools();
  const echoed = await call("echo", { text: "e".repeat(1024) });
  const failed = await call("test_error_handling", {});
  const asked = await call("test_elicitation", { message: "Who?" });
  const sampled = await call("test_sampling", { prompt: "Where?" });
  const roots = await call("test_input_required_result_list_roots", {});
  await call("test_tool_with_progress", {}, { onprogress: (told) => progress.push(told.progress) });
  const read = await client.readResource({ uri: resource });
  const prompt = await client.getPrompt({
    name: `${prefix}test_prompt_with_arguments`,
    arguments: { arg1: "1", arg2: "2" },
  });
  const report = {
    revision: v1 ? transport.protocolVersion : client.getNegotiatedProtocolVersion(),
    tools: tools.map((tool) => tool.name),
    echo: echoed.content[0].text,
    failed: failed.isError ? failed.content[0].text : null,
    asked: asked.content[0].text,
    generated: sampled.content[0].text,
    roots: roots.content[0].text,
    progress,
    resource: read.contents[0].text,
    prompt: prompt.messages[0].content.text,
  };
  await client.close();
  process.stdout.write(JSON.stringify(report) + "\n");
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
