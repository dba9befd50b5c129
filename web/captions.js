/** Speaks captions to screen readers, a group of words at a time. */

const GROUP = /^\s*(?:\S+\s+){7}\S+\s|^[\s\S]*?[.,;:!?。，；：！？…]\s*/u;

export class Captions {
  #region;
  #id = null;
  #announced = 0;

  /** `region` is an `aria-live` element. */
  constructor(region) {
    this.#region = region;
  }

  /** Show how far the text of a response has come; `whole` when nothing follows. */
  update(id, text, whole) {
    if (id !== this.#id) {
      this.#id = id;
      this.#announced = 0;
      this.#region.replaceChildren();
    }
    for (let group = this.#next(text, whole); group; group = this.#next(text, whole)) {
      this.#announced += group.length;
      const span = document.createElement("span");
      span.textContent = group;
      this.#region.append(span);
    }
  }

  #next(text, whole) {
    const rest = text.slice(this.#announced);
    return GROUP.exec(rest)?.[0] ?? (whole ? rest : "");
  }
}
