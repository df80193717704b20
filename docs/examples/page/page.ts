// The inbox of a hub on a plain page: watches what is open, shows a form for each, and sends the answers.

import { ConnectError, createClient, type Client, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { InboxService, PendingRequestKind, PendingRequestState, type PendingRequest } from "/gen/hubbub/v1/inbox_pb.js";

type Field = { title?: string; type?: string; default?: unknown; enum?: string[]; oneOf?: { const: string; title: string }[] };
type Form = { message: string; requestedSchema: { properties: Record<string, Field>; required?: string[] } };

const status = document.querySelector<HTMLElement>("#status")!;
const list = document.querySelector<HTMLElement>("#questions")!;
const shown = new Map<string, HTMLElement>();

// MCP's own JSON travels as bytes, so that it arrives as it was sent.
const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));
const parsed = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes));

// Text of servers only ever becomes text: there is no innerHTML on this page.
function make(name: string, text = "", ...children: Node[]): HTMLElement {
  const made = document.createElement(name);
  made.append(text, ...children);
  return made;
}

let following = new AbortController();

document.querySelector("form")!.addEventListener("submit", (event) => {
  event.preventDefault();
  const given = new FormData(event.target as HTMLFormElement);
  const authorize: Interceptor = (next) => (request) => {
    request.header.set("authorization", `Bearer ${given.get("token")}`);
    return next(request);
  };
  const settings = { baseUrl: String(given.get("address")), interceptors: [authorize], useBinaryFormat: true };
  following.abort();
  following = new AbortController();
  [...shown.keys()].forEach(hide);
  void follow(createClient(InboxService, createConnectTransport(settings)), following.signal);
});

// A watch ends with the hub, or with the network. It is made again, and goes on where it was.
async function follow(inbox: Client<typeof InboxService>, signal: AbortSignal): Promise<void> {
  let resumeToken = "";
  while (!signal.aborted) {
    try {
      const filter = { states: [PendingRequestState.OPEN] };
      for await (const step of inbox.watchPendingRequests({ filter, resumeToken }, { signal })) {
        resumeToken = step.resumeToken || resumeToken;
        if (step.event.case === "upsert") show(inbox, step.event.value);
        if (step.event.case === "removed") hide(step.event.value.id);
        if (step.event.case === "reset") [...shown.keys()].forEach(hide);
        status.textContent = shown.size ? `${shown.size} waiting` : "Nothing waits.";
      }
    } catch (error) {
      if (!signal.aborted) status.textContent = error instanceof ConnectError ? error.message : String(error);
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

function hide(id: string): void {
  shown.get(id)?.remove();
  shown.delete(id);
}

function show(inbox: Client<typeof InboxService>, request: PendingRequest): void {
  if (request.state !== PendingRequestState.OPEN) return hide(request.id);
  if (shown.has(request.id)) return;
  const item = make("li");
  const asked: Form = parsed(request.request);
  const plain = request.kind === PendingRequestKind.ELICITATION_FORM && !Object.values(asked.requestedSchema.properties).some(({ type }) => type === "array");
  if (plain) {
    item.append(form(inbox, request, asked));
  } else {
    item.append(make("p", `${request.server} asks for more than a form: hubbub inbox answer ${request.id}`));
  }
  list.append(item);
  shown.set(request.id, item);
}

function form(inbox: Client<typeof InboxService>, request: PendingRequest, asked: Form): HTMLElement {
  const wrong = make("p");
  wrong.className = "wrong";
  wrong.setAttribute("role", "alert");
  const decline = make("button", "Decline") as HTMLButtonElement;
  decline.type = "button";
  const buttons = make("div", "", make("button", "Send"), decline);
  buttons.className = "buttons";
  const fields = Object.entries(asked.requestedSchema.properties).map(([name, field]) => input(name, field));
  const made = make("form", "", make("h2", asked.message), make("p", request.server), ...fields, wrong, buttons) as HTMLFormElement;

  // The hub decides: it refuses what the form does not allow, and what comes after somebody else's answer.
  const send = async (answer: Parameters<typeof inbox.answerPendingRequest>[0]["answer"]) => {
    wrong.textContent = "";
    try {
      await inbox.answerPendingRequest({ id: request.id, answer });
    } catch (error) {
      wrong.textContent = error instanceof ConnectError ? error.rawMessage : String(error);
    }
  };
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    void send({ case: "accept", value: { content: json(content(made, asked)) } });
  });
  decline.addEventListener("click", () => void send({ case: "decline", value: {} }));
  return made;
}

function input(name: string, field: Field): HTMLElement {
  const choices = field.oneOf ?? field.enum?.map((value) => ({ const: value, title: value }));
  const box = document.createElement(choices ? "select" : "input");
  box.name = name;
  if (box instanceof HTMLSelectElement) {
    box.append(...choices!.map((choice) => new Option(choice.title, choice.const)));
    if (field.default !== undefined) box.value = String(field.default);
    else box.prepend(new Option("", "", true, true)); // nobody has chosen yet
  } else if (field.type === "boolean") {
    box.type = "checkbox";
    box.checked = field.default === true;
  } else {
    box.type = field.type === "string" ? "text" : "number";
    box.step = "any";
    if (field.default !== undefined) box.value = String(field.default);
  }
  return make("label", field.title ?? name, box);
}

// Empty fields are left out.
function content(made: HTMLFormElement, asked: Form): Record<string, unknown> {
  const given: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(asked.requestedSchema.properties)) {
    const box = made.elements.namedItem(name) as HTMLInputElement;
    if (field.type === "boolean") given[name] = box.checked;
    else if (box.value !== "") given[name] = field.type === "string" ? box.value : Number(box.value);
  }
  return given;
}
