/** Elements by id, and new ones. Only text goes in: nothing here reads markup. */

export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`The page has no #${id}.`);
  return found;
}

/** element("button", {type: "button", onclick: f}, "Hear") */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : value);
    }
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** One of the symbols at the top of index.html. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** Hide or show, and say so to nobody: the caller decides what is announced. */
export function show(element_, visible) {
  element_.hidden = !visible;
}

/** A button that cannot be used now keeps its place in the tab order and its focus. */
export function enable(button, usable) {
  button.setAttribute("aria-disabled", String(!usable));
}

export function isEnabled(button) {
  return button.getAttribute("aria-disabled") !== "true";
}
