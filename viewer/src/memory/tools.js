// Buttons and boxes that are made anew with every change, and keep the focus of whoever uses the keyboard.

const REACHED = "button, select, input, a, canvas, [tabindex]";

/** @param {Element} node */
const called = (node) => node.getAttribute("aria-label") || node.textContent || "";

/** Fill a box; what had the focus in it hands it to its successor, by name or else by place.
 * @param {HTMLElement} box @param {...(Node | string)} children */
export function refill(box, ...children) {
  const before = [...box.querySelectorAll(REACHED)], at = before.findIndex((each) => each === document.activeElement), name = at < 0 ? "" : called(before[at]);
  box.replaceChildren(...children);
  if (at < 0) return;
  const after = [...box.querySelectorAll(REACHED)];
  const next = after.find((each) => called(each) === name) ?? after[Math.min(at, after.length - 1)];
  if (next instanceof HTMLElement) next.focus();
}
