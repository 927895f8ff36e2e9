/** Errors at the field they are about. */

import { byId } from "./dom.js";

/** A form's fields: the server's `param` -> the id of the field; #<id>-error is where words go. */
export class Fields {
  constructor(ids) {
    this.ids = ids;
    for (const id of Object.values(ids)) {
      byId(id).addEventListener("input", () => this.#set(id, ""));
    }
  }

  /** Show a refusal at its field, and take the listener there. False: it is about no field here. */
  refuse(refusal) {
    const id = this.ids[refusal.param];
    if (!id) return false;
    this.#set(id, refusal.message);
    byId(id).focus();
    return true;
  }

  clear() {
    for (const id of Object.values(this.ids)) this.#set(id, "");
  }

  #set(id, words) {
    byId(`${id}-error`).textContent = words;
    if (words) byId(id).setAttribute("aria-invalid", "true");
    else byId(id).removeAttribute("aria-invalid");
  }
}
