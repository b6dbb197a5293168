// Building the page. Texts become text nodes, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function element(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS(SVG, tag), attributes, children);
}

// Attributes with the value null, undefined or false are left out; functions become listeners. Styles are set through the
// CSSOM, because the page's content security policy forbids style attributes.
function dressed(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') node.addEventListener(name, value);
    else if (name === 'style') Object.entries(value).forEach(([key, one]) => node.style.setProperty(key, one));
    else node.setAttribute(name, value === true ? '' : value);
  }
  refill(node, ...children);
  return node;
}

function refill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

// choices: [value, text] pairs.
function choose(select, choices, chosen) {
  refill(
    select,
    choices.map(([value, text]) => element('option', { value }, text)),
  );
  select.value = chosen;
}

// A menu of [value, text] pairs with the first chosen; `change` is called with the value that the reader chooses.
function menu(name, choices, change) {
  const select = element('select', { name, change: () => change(select.value) });
  choose(select, choices, choices[0]?.[0]);
  return select;
}

function labelled(text, control) {
  return element('label', { class: 'control' }, element('span', {}, text), control);
}

// A container that scrolls a table that is wider than the page.
function scrolling(table) {
  return element('div', { class: 'wide', tabindex: '0' }, table);
}

// Lists by key, in order of appearance.
function groupedBy(items, keyOf) {
  const groups = new Map(items.map((item) => [keyOf(item), []]));
  for (const item of items) groups.get(keyOf(item)).push(item);
  return groups;
}
