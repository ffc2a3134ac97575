// Small things of the page. Text of peers goes into text nodes only, never into markup.

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; texts become text nodes. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Writes only what changed: a selection in it stays. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Makes the children of a list the given ones in order, and moves none that stands right. */
export function arrange(list, wanted) {
  let place = list.firstChild;
  for (const node of wanted) {
    if (node === place) place = place.nextSibling;
    else list.insertBefore(node, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** A trust as a badge: a shape and a word beside the colour. */
export function showTrust(node, trust) {
  setAttribute(node, "data-trust", trust);
  setText(node, trust);
}

/** One tab stop for a whole list; the arrows go through it. */
export function roving(list, choose) {
  list.addEventListener("keydown", (press) => {
    const items = [...list.children].filter((item) => !item.hidden);
    const at = items.indexOf(press.target.closest("[tabindex]"));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1, PageDown: at + 10, PageUp: at - 10 }[press.key];
    if (to === undefined || items.length === 0) return;
    press.preventDefault();
    const item = items[Math.max(0, Math.min(items.length - 1, to))];
    item.focus();
    choose(item);
  });
  list.addEventListener("click", (click) => {
    const item = click.target.closest("[tabindex]");
    if (item) choose(item);
  });
}
