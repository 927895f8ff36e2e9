/** Marks the words being spoken, in a copy of the text that lies behind the text field. */

export class Highlight {
  #shown = "";

  constructor(field, backdrop) {
    this.field = field;
    this.backdrop = backdrop;
    field.addEventListener("scroll", () => this.#align());
    field.addEventListener("input", () => this.clear());
  }

  /** Mark from..to of `text`, unless the field says something else by now. */
  mark(text, fragment) {
    if (!fragment || this.field.value !== text) {
      this.clear();
      return;
    }
    const shown = `${fragment.from} ${fragment.to}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(fragment.from, fragment.to);
    // The line that a last line break begins is only there if something stands in it.
    this.backdrop.replaceChildren(
      text.slice(0, fragment.from),
      mark,
      `${text.slice(fragment.to)}\n`,
    );
    this.#align();
    this.#reveal(mark);
  }

  clear() {
    if (!this.#shown) return;
    this.#shown = "";
    this.backdrop.replaceChildren();
  }

  #align() {
    this.backdrop.scrollTop = this.field.scrollTop;
  }

  /** Scroll long texts along. */
  #reveal(mark) {
    const { field } = this;
    const top = mark.offsetTop;
    const bottom = top + mark.offsetHeight;
    if (top < field.scrollTop || bottom > field.scrollTop + field.clientHeight) {
      field.scrollTop = Math.max(0, top - field.clientHeight / 3);
    }
  }
}
