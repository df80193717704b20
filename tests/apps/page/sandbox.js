// Stands between a host and the page of an app, on an origin of its own, as the specification of MCP Apps wants it
// (2026-01-26, "Sandbox proxy"): it has the page in a frame, and passes messages on in both directions.

const host = new URL(document.referrer).origin;
if (host === location.origin) throw new Error("the host's own origin does not keep its pages apart");

const app = document.createElement("iframe");
app.setAttribute("sandbox", "allow-scripts allow-same-origin allow-forms");
document.body.append(app);

function showPage({ html, sandbox }) {
  if (sandbox) app.setAttribute("sandbox", sandbox);
  app.srcdoc = html;
}

window.addEventListener("message", ({ source, origin, data }) => {
  if (source === window.parent && origin === host) {
    if (data.method === "ui/notifications/sandbox-resource-ready") showPage(data.params);
    else app.contentWindow.postMessage(data, "*");
  } else if (source === app.contentWindow) {
    window.parent.postMessage(data, host);
  }
});

window.parent.postMessage({ jsonrpc: "2.0", method: "ui/notifications/sandbox-proxy-ready", params: {} }, host);
