// A frontend in one file: calls a tool, and asks on the terminal whatever the tool asks people meanwhile.
//
//   node src/call.ts [--grpc-web] SERVER TOOL [ARGUMENTS]
//
// Apart from the terminal and the file where address and token are found, all of it runs in a browser as it is.

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { type Call, CallService, CallState } from "../gen/hubbub/v1/call_pb.js";
import { InboxService, type PendingRequest, PendingRequestKind, PendingRequestState } from "../gen/hubbub/v1/inbox_pb.js";

type Field = { title?: string; type?: string; default?: unknown; enum?: string[]; oneOf?: { const: string }[] };
type Form = { message: string; requestedSchema: { properties: Record<string, Field>; required?: string[] } };

const { values: options, positionals } = parseArgs({ allowPositionals: true, options: { "grpc-web": { type: "boolean" } } });
const [server, tool, given = "{}"] = positionals;
if (!server || !tool) {
  console.error("usage: node src/call.ts [--grpc-web] SERVER TOOL [ARGUMENTS]");
  process.exit(2);
}

type ClientFile = { connect?: string; token: string };

/** Return the address and the token of the hub on this machine; end the program if there is none. */
function findHub(): { connect: string; token: string } {
  const base = process.env.XDG_DATA_HOME ?? "";
  const share = base.startsWith("/") ? base : join(homedir(), ".local", "share"); // a relative one does not count
  const file = join(process.env.HUBBUB_DATA_DIR || join(share, "hubbub"), "client.json");
  try {
    const { connect, token }: ClientFile = JSON.parse(readFileSync(file, "utf8"));
    if (connect) return { connect, token };
    console.error(`the hub of ${file} does not serve Connect: set connect_listen`);
  } catch (error) {
    console.error(`no hub found: ${error}`);
  }
  process.exit(1);
}

const hub = findHub();

// Sends the token with each request.
const authorize: Interceptor = (next) => (request) => {
  request.header.set("authorization", `Bearer ${hub.token}`);
  return next(request);
};
// In the hub's JSON documents stand as they are, and the generated code has them as bytes: so it speaks binary.
const settings = { baseUrl: hub.connect, interceptors: [authorize], useBinaryFormat: true };
const transport = options["grpc-web"] ? createGrpcWebTransport(settings) : createConnectTransport(settings);
const calls = createClient(CallService, transport);
const inbox = createClient(InboxService, transport);

// MCP's own JSON travels as bytes, so that it arrives exactly as it was sent.
const toJsonBytes = (value: unknown): Uint8Array<ArrayBuffer> => new TextEncoder().encode(JSON.stringify(value));
const parseJsonBytes = (bytes: Uint8Array): any => JSON.parse(new TextDecoder().decode(bytes));
// What a server says is shown, never obeyed: nothing of it may move the cursor.
const clean = (text: unknown): string => String(text).replace(/[\p{Cc}\p{Cf}]/gu, "\u{fffd}");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Ask a question on the terminal and return the line that was typed. */
async function askPerson(question: string): Promise<string> {
  process.stderr.write(question);
  const line = await lines.next();
  if (line.done) throw new Error("nobody is there to answer");
  return line.value.trim();
}

/** Ask for each field of a form. An empty line leaves the field out; the hub checks the rest, and says which field is wrong. */
async function fillForm(form: Form): Promise<Record<string, unknown>> {
  const content: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(form.requestedSchema.properties)) {
    const choices = field.enum ?? field.oneOf?.map((choice) => choice.const);
    const hint = (choices ? ` (${choices.join(", ")})` : "") + ("default" in field ? ` [${field.default}]` : "");
    const text = await askPerson(`  ${clean((field.title ?? name) + hint)}: `);
    if (text !== "") content[name] = field.type === "string" ? text : parseLiteral(text);
  }
  return content;
}

/** Return what was typed as the JSON value that it is, such as a number or a list; other text as it is. */
function parseLiteral(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Have the person fill in the form of a pending request, until the hub accepts it or it is not open any more. */
async function answerRequest(request: PendingRequest): Promise<void> {
  if (request.kind !== PendingRequestKind.ELICITATION_FORM) {
    console.error(`${clean(request.server)} asks for more than a form: hubbub inbox answer ${request.id}`);
    return;
  }
  const form: Form = parseJsonBytes(request.request);
  for (;;) {
    console.error(`${clean(request.server)}: ${clean(form.message)}`);
    try {
      const accept = { content: toJsonBytes(await fillForm(form)) };
      await inbox.answerPendingRequest({ id: request.id, answer: { case: "accept", value: accept } });
      return;
    } catch (error) {
      if (!(error instanceof ConnectError)) throw error;
      console.error(`  ${clean(error.rawMessage)}`);
      // Somebody else may have been faster.
      const now = await inbox.getPendingRequest({ id: request.id });
      if (now.pendingRequest?.state !== PendingRequestState.OPEN) return;
    }
  }
}

/** Answer the pending requests of a call as they come, one after the other. */
async function answerAll(callId: string): Promise<void> {
  const filter = { callId, states: [PendingRequestState.OPEN] };
  for await (const { event } of inbox.watchPendingRequests({ filter })) {
    if (event.case === "upsert") await answerRequest(event.value);
  }
}

/** Return a call once it has ended. It may wait for people longer than a browser waits for a response, so it is watched. */
async function waitForEnd(id: string): Promise<Call> {
  const states = [CallState.COMPLETED, CallState.FAILED, CallState.CANCELLED];
  for await (const { event } of calls.watchCalls({ filter: { ids: [id], states } })) {
    if (event.case === "upsert") return event.value;
  }
  throw new Error("the hub has stopped");
}

try {
  const params = toJsonBytes({ name: tool, arguments: JSON.parse(given) });
  const { call } = await calls.startCall({ spec: { server, method: "tools/call", params } });
  const end = waitForEnd(call!.id);
  // Whichever fails first ends the program; without questions the end alone counts.
  const outcome = await Promise.race([end, answerAll(call!.id).then(() => end)]);
  console.log(outcome.error ? clean(outcome.error.message) : JSON.stringify(parseJsonBytes(outcome.result)));
  process.exit(outcome.error ? 1 : 0);
} catch (error) {
  console.error(clean(error instanceof ConnectError ? error.message : error));
  process.exit(1);
}
