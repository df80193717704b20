"""What the page keeps of the records, and how it asks for them: its module alone, in Node."""

from .test_static import node, ran

__all__ = ["node"]

# What the module needs of a browser. Breaks between two streams are over at once.
BROWSER = """
const timeout = globalThis.setTimeout;
globalThis.setTimeout = (work, pause) => timeout(work, pause === 1000 ? 0 : pause);
globalThis.requestAnimationFrame = (work) => timeout(work, 0);
globalThis.localStorage = { getItem: () => null };
"""

FEED = """
const asked = [];
const streams = [
  '{"kind": "server", "id": "a", "record": {"id": "a"}}\\n{"token": "t1"}\\n',
  '{"kind": "server", "id": "b", "record": {"id": "b"}}\\n',
  '{"token": "t2"}\\n{"kind": "server", "id": "a", "record": null}\\n',
];
globalThis.fetch = async (path, { body }) => {
  asked.push(JSON.parse(body).token);
  const said = streams.shift();
  return said ? new Response(said) : Response.json({ error: { message: "no" } }, { status: 401 });
};
const { followBridge, state, tables } = await import(`${JS}/store.js`);
await followBridge();
console.log(JSON.stringify([asked, [...tables.server.keys()], state.link]));
"""

SINGLE = """
const { oneAtATime } = await import(`${JS}/store.js`);
let now = 0, most = 0, runs = 0;
const ends = [];
const work = oneAtATime(async () => {
  runs += 1;
  most = Math.max(most, ++now);
  await new Promise((end, fail) => ends.push(runs === 1 ? fail : end));
});
const over = () => new Promise((go) => timeout(go, 0));
const begun = [work(), work(), work()];
const first = [runs, most];
while (ends.length) {
  now -= 1;
  ends.shift()();
  await over();
}
await Promise.all(begun);
const soon = [runs, most];
work();
console.log(JSON.stringify([first, soon, [runs, most]]));
"""


def test_after_a_break_the_page_goes_on_from_the_last_token(node: str) -> None:
    asked, servers, link = ran(node, BROWSER + FEED)
    assert asked == ["", "t1", "t1", "t2"]
    assert (servers, link) == (["b"], "out")


def test_what_is_asked_for_while_it_runs_is_run_once_more_and_never_beside_itself(node: str) -> None:
    first, soon, later = ran(node, BROWSER + SINGLE)
    assert (first, soon) == ([1, 1], [2, 1])
    assert later[0] == 3, "and once more when it is asked for again"
