// The tables and figures, as `python -m analysis figures` builds them.

function outputsView(title, shown, missing) {
  const none = shown.length ? null : element('p', {}, 'None could be built from these runs.');
  const line = ({ name, reason, remedy }) =>
    element('p', { class: 'note' }, `${name} is missing: ${reason}. `, element('code', {}, remedy));
  return { title, node: element('section', {}, shown, none, missing.map(line)) };
}

function outputTable(table, id = table.name) {
  const kind = (k) => ({ class: k < table.words.length ? null : 'number' });
  const head = [...table.words, ...table.numbers].map((name, k) => element('th', { scope: 'col', ...kind(k) }, name));
  const line = (row) => element('tr', {}, row.map((cell, k) => element('td', kind(k), tableCell(cell))));
  const bodies = table.blocks.map((block) => {
    const title = element('th', { colspan: head.length, scope: 'rowgroup' }, block.title);
    return element('tbody', {}, element('tr', { class: 'block' }, title), block.rows.map(line));
  });
  return element(
    'figure',
    { id: id || null },
    heading(table.caption, table.name),
    scrolling(element('table', {}, element('thead', {}, element('tr', {}, head)), bodies)),
    element('figcaption', {}, table.caption),
    table.latex ? copyButton(table.latex) : null,
  );
}

// Where the clipboard is refused, the text is shown to be copied by hand.
function copyButton(latex) {
  const text = element('textarea', { readonly: true, hidden: true, rows: 8, 'aria-label': 'LaTeX of the table' }, latex);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(latex);
      button.textContent = 'copied';
    } catch {
      text.hidden = false;
      text.select();
    }
  };
  const button = element('button', { type: 'button', class: 'copy', click: copy }, 'Copy LaTeX');
  return [button, text];
}

// The title of a table or figure, and the name that its files have.
function heading(caption, name) {
  const title = titleOf(caption || '');
  return element('h2', {}, title || name, title ? element('code', { class: 'name' }, name) : null);
}

// The caption's first sentence; of a long one as many of its clauses as fit. A colon ends no sentence.
const LONGEST_TITLE = 90;

function titleOf(caption) {
  const sentence = caption.split(/\.(?=\s|$)/)[0].trim();
  if (sentence.length <= LONGEST_TITLE) return sentence;
  const beginning = sentence.slice(0, LONGEST_TITLE + 1);
  const clause = Math.max(beginning.lastIndexOf(','), beginning.lastIndexOf(';'), beginning.lastIndexOf(' ('));
  if (clause > LONGEST_TITLE / 3) return sentence.slice(0, clause);
  return `${beginning.slice(0, beginning.lastIndexOf(' '))} …`;
}

function tableCell(cell) {
  return cell?.best ? element('b', {}, cell.best) : (cell ?? '–');
}

function outputFigure({ name, runs, source, width, caption, numbers }) {
  const drawnFrom = `Drawn from ${runs} ${runs === 1 ? 'run' : 'runs'}.`;
  return element(
    'figure',
    { id: name },
    heading(caption, name),
    element('img', { src: source, alt: `Figure ${name}, drawn from ${runs} runs`, loading: 'lazy', width }),
    element('figcaption', {}, caption ? `${caption} ${drawnFrom}` : drawnFrom),
    numbers ? captionNumbers(numbers) : null,
  );
}

function captionNumbers({ head, rows }) {
  const table = simpleTable(head, rows, { class: 'numbers', words: head.length });
  return element('details', {}, element('summary', {}, 'Numbers'), scrolling(table));
}
