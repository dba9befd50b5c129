/** The list of items: what was said, what of it was heard, and what is being spoken. */

const ROLE_NAMES = { user: "User", assistant: "Assistant" };
const STATE_NAMES = { waiting: "Preparing", speaking: "Speaking", stalled: "Waiting for more", stopped: "Stopped" };

/** Rows to show, from the server's items and the responses under way. Pure. */
export function dialogueRows(items, responses) {
  const active = new Map(responses.map((response) => [response.itemId, response]));
  const rows = items.map((item) => itemRow(item, active.get(item.id)));
  const known = new Set(items.map(({ id }) => id));
  for (const response of responses) {
    if (known.has(response.itemId)) continue;
    rows.push({
      id: response.itemId ?? response.id,
      role: "assistant",
      heard: response.text,
      unheard: "",
      note: STATE_NAMES[response.state],
      state: response.state,
    });
  }
  return rows;
}

function itemRow(item, response) {
  const whole = item.generated_text ?? item.text;
  const unheard = whole.startsWith(item.text) ? whole.slice(item.text.length) : "";
  const notes = [];
  if (response) notes.push(STATE_NAMES[response.state]);
  if (item.audio_ms > 0) notes.push(`${(item.audio_ms / 1000).toFixed(1)} s`);
  if (unheard) notes.push(item.exact ? "stopped" : "stopped, words estimated");
  if (!item.in_context) notes.push("no longer in the model's context");
  return {
    id: item.id,
    role: item.role,
    heard: item.text,
    unheard,
    note: notes.join(" · "),
    state: response?.state ?? (item.in_context ? "" : "outside"),
  };
}

export class DialogueView {
  #list;
  #nodes = new Map();

  /** `list` is an `<ol>`. */
  constructor(list) {
    this.#list = list;
  }

  /** Show the rows; scrolls to the newest when one came or grew. */
  render(rows) {
    const grew = rows.map((row) => this.#show(row)).some(Boolean);
    const ids = new Set(rows.map(({ id }) => id));
    for (const [id, node] of this.#nodes) {
      if (ids.has(id)) continue;
      node.remove();
      this.#nodes.delete(id);
    }
    rows.forEach(({ id }, index) => {
      const node = this.#nodes.get(id);
      if (this.#list.children[index] !== node) this.#list.insertBefore(node, this.#list.children[index]);
    });
    if (grew) this.#list.scrollTop = this.#list.scrollHeight;
  }

  #show(row) {
    const key = JSON.stringify(row);
    let node = this.#nodes.get(row.id);
    if (node?.dataset.key === key) return false;
    if (!node) {
      node = document.createElement("li");
      this.#nodes.set(row.id, node);
    }
    const said = element("p", "said", row.heard);
    if (row.unheard) said.append(element("del", "", row.unheard));
    node.replaceChildren(element("span", "role", ROLE_NAMES[row.role]), said);
    if (row.note) node.append(element("span", "note", row.note));
    node.className = `item ${row.role} ${row.state}`;
    node.dataset.key = key;
    return true;
  }
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}
