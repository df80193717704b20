"""Bounds of the page's lists and forms: its modules in Node, with the little of a browser that they use."""

from .test_static import node, ran

__all__ = ["node"]

BROWSER = """
class Node extends EventTarget {
  constructor(name) {
    super();
    Object.assign(this, { localName: name, children: [], value: "", validity: {}, hidden: false, textContent: "" });
  }
  get firstChild() { return this.children[0] ?? null; }
  get nextSibling() { return this.parent?.children[this.parent.children.indexOf(this) + 1] ?? null; }
  setAttribute() {}
  removeAttribute() {}
  focus() {}
  remove() {
    if (this.parent) this.parent.children.splice(this.parent.children.indexOf(this), 1);
    this.parent = null;
  }
  append(...nodes) { for (const each of nodes) this.insertBefore(each, null); }
  insertBefore(node, before) {
    if (node instanceof Node) { node.remove(); node.parent = this; }
    this.children.splice(before ? this.children.indexOf(before) : this.children.length, 0, node);
  }
  replaceChildren(...nodes) { this.children = []; this.append(...nodes); }
  all(name) {
    return this.children.flatMap((each) =>
      each instanceof Node ? [...(each.localName === name ? [each] : []), ...each.all(name)] : []);
  }
}
globalThis.Node = Node;
globalThis.document = { createElement: (name) => new Node(name), createTextNode: (text) => text };
"""

LIST = """
const { cardList } = await import(`${JS}/list.js`);
const { h } = await import(`${JS}/dom.js`);
const { element, show } = cardList((record) => h("p", { text: record.id }), { name: "n", empty: "e" });
show(Array.from({ length: 500 }, (_, id) => ({ id: `r${id}` })));
const [more] = element.all("button");
const seen = [];
for (let round = 0; round < 3; round++) {
  seen.push([element.all("li").length, more.hidden]);
  more.dispatchEvent(new Event("click"));
}
console.log(JSON.stringify(seen));
"""

FORM = """
const { schemaForm } = await import(`${JS}/form.js`);
const form = schemaForm({ type: "object", properties: { name: { type: "string", minLength: 2, maxLength: 3 } } }, "c");
const [input] = form.element.all("input");
const given = [];
for (const text of ["🐸", "🐸🐸", "🐸🐸🐸", "🐸🐸🐸🐸"]) {
  input.value = text;
  given.push(form.values() !== null);
}
console.log(JSON.stringify(given));
"""


def test_show_more_shows_one_page_more_until_all_are_there(node: str) -> None:
    assert ran(node, BROWSER + LIST) == [[200, False], [400, False], [500, True]]


def test_the_length_of_a_text_is_that_of_its_characters(node: str) -> None:
    assert ran(node, BROWSER + FORM) == [False, True, True, False]
