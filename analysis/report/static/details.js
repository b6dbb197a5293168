// Everything that was recorded about the chosen step.

const MOST_PEERS = 12;

class Details {
  constructor() {
    this.node = element('section', { class: 'panel details', 'aria-label': 'Chosen step', 'aria-live': 'polite' });
  }

  show(group, match, at) {
    if (!at) {
      const hint = 'Choose a step to see where its return and advantage come from.';
      refill(this.node, element('h3', {}, 'Chosen step'), element('p', {}, hint));
      return;
    }
    const step = stepsOf({ group, match }, at.side)[at.time];
    const { works, text } = effect(group, step);
    refill(
      this.node,
      element('h3', {}, `${at.side === 'f' ? 'Failed' : 'Reference'} step ${step.time}`),
      element('p', {}, at.side === 'f' ? reason(group, match, step) : matchedBy(match, step)),
      changes(group, step),
      element('p', { class: works ? 'effect works' : 'effect' }, text),
      peersTable(step),
      stepTexts(step),
    );
  }
}

function matchedBy(match, step) {
  if (!step.kept) return 'Left out by the step filter: no position of the reference.';
  const times = partnersOf(match, { side: 'r', time: step.time });
  if (!times.length) return `Sibling ${match.trajectory} earned no credit here.`;
  return `Matched by failed step ${times.join(', ')} of sibling ${match.trajectory}.`;
}

function changes(group, step) {
  const credit = `α · credit = ${group.settings.alpha} · ${fixed(step.credit, 3)} = ${fixed(step.added, 3)}`;
  const penalty = `The return includes a penalty of ${fixed(step.penalty)} for an invalid action.`;
  const rows = [
    ['return', step.before, step.after],
    ['advantage', step.unshaped, step.advantage],
  ].map(([name, before, after]) => [name, fixed(before, 3), fixed(after, 3), signed(after - before, 3)]);
  return [
    simpleTable(['', 'before', 'after', 'change'], rows, { class: 'changes', words: 1 }),
    step.credit > 0 ? element('p', { class: 'small' }, credit) : null,
    step.penalty > 1e-6 ? element('p', { class: 'small' }, penalty) : null,
  ];
}

function stepTexts(step) {
  const texts = [
    ['Action', step.action || '(none)'],
    ['Observation after it', step.observation || '(empty)'],
  ].map(([name, text]) => [element('dt', {}, name), element('dd', {}, text)]);
  const state = element('p', { class: 'text' }, step.state || '(empty)');
  return [
    element('dl', {}, texts),
    element('details', {}, element('summary', {}, 'State before it (anchor state)'), state),
  ];
}

// The steps that the chosen one is compared with: those of its group that start from the same state.
function peersTable(step) {
  const change = (before, after) =>
    fixed(before) === fixed(after) ? fixed(after) : `${fixed(before)} → ${fixed(after)}`;
  const row = (one) => [
    `${one.trajectory} ${one.success ? '✓' : '✗'}`,
    String(one.time),
    change(one.before, one.after),
    change(one.unshaped, one.advantage),
  ];
  const first = step.peers.slice(0, MOST_PEERS);
  const shown = first.includes(step) ? first : [...first.slice(0, -1), step]; // the chosen one is never hidden
  const rest = step.peers.length - shown.length;
  const head = ['sibling', 'step', 'return', 'advantage'];
  const table = simpleTable(head, shown.map(row), { class: 'peers', words: 2, self: shown.indexOf(step) });
  return [
    element('h4', {}, `Anchor group: ${counted(step.peers)} from this state`),
    scrolling(table),
    rest > 0 ? element('p', { class: 'small' }, `and ${rest} more`) : null,
  ];
}

// Rows of texts; the first `words` columns are words, the others numbers; row `self` stands out.
function simpleTable(head, rows, { class: name, words, self = -1 }) {
  const kind = (k) => ({ class: k < words ? null : 'number' });
  const cells = (row) => row.map((text, k) => element('td', kind(k), text));
  const body = rows.map((row, k) => element('tr', { class: k === self ? 'self' : null }, cells(row)));
  const heads = head.map((text, k) => element('th', { scope: 'col', ...kind(k) }, text));
  return element('table', { class: name }, element('thead', {}, element('tr', {}, heads)), element('tbody', {}, body));
}
