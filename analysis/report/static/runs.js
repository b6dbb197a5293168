// The run table, and the filters that it shares with the curves.

const FACETS = { scale: 'Scale', env: 'Environment', model: 'Model', label: 'Row', state: 'State' };
const RUN_COLUMNS = [
  { key: 'id', title: 'Run' },
  { key: 'label', title: 'Row' },
  { key: 'env', title: 'Environment' },
  { key: 'model', title: 'Model' },
  { key: 'scale', title: 'Scale' },
  { key: 'seed', title: 'Seed', numeric: true },
  { key: 'state', title: 'State' },
  { key: 'step', title: 'Step', numeric: true },
];

function filteredRuns(data, state) {
  const words = (state.find || '').toLowerCase().split(/\s+/).filter(Boolean);
  return data.runs.filter((run) => {
    const text = `${run.id} ${run.label} ${run.method} ${run.state}`.toLowerCase();
    const fits = Object.keys(FACETS).every((facet) => !state[facet] || run[facet] === state[facet]);
    return fits && words.every((word) => text.includes(word));
  });
}

// The only value that all runs have; null if they differ.
function common(data, key) {
  const values = new Set(data.runs.map((run) => run[key]));
  return values.size === 1 ? [...values][0] : null;
}

class FilterBar {
  constructor(data, go) {
    this.data = data;
    const placeholder = 'words in id, row or state';
    const input = () => go({ find: this.find.value }, true);
    this.find = element('input', { type: 'search', name: 'find', placeholder, input });
    this.selects = Object.keys(FACETS).map((facet) => this.select(facet, go));
    this.count = element('output', { class: 'count' });
    const cleared = Object.fromEntries(['find', ...Object.keys(FACETS)].map((name) => [name, '']));
    const clear = element('button', { type: 'button', click: () => go(cleared, true) }, 'Clear');
    const useful = this.selects.filter((select) => common(data, select.name) === null);
    const controls = useful.map((select) => labelled(FACETS[select.name], select));
    this.node = element('div', { class: 'bar' }, labelled('Find', this.find), controls, clear, this.count);
  }

  select(facet, go) {
    const values = [...new Set(this.data.runs.map((run) => run[facet]))].sort();
    return menu(facet, [['', 'all'], ...values.map((value) => [value, value])], (value) => go({ [facet]: value }, true));
  }

  update(state) {
    if (this.find.value !== (state.find || '')) this.find.value = state.find || '';
    for (const select of this.selects) select.value = state[select.name] || '';
    this.count.value = `${filteredRuns(this.data, state).length} of ${this.data.runs.length} runs`;
  }
}

class RunsView {
  title = 'Runs';

  constructor(data, go) {
    this.data = data;
    this.state = {};
    const measured = data.columns.map((column) => ({ ...column, key: column.metric, numeric: true }));
    const telling = RUN_COLUMNS.filter(({ key }) => !(key in FACETS) || key === 'label' || common(data, key) === null);
    this.columns = [...telling, ...measured];
    this.filters = new FilterBar(data, go);
    this.headings = this.columns.map((column) => this.heading(column, go));
    this.body = element('tbody');
    const table = element(
      'table',
      { class: 'runs' },
      element('thead', {}, element('tr', {}, this.headings)),
      this.body,
    );
    const parts = [this.filters.node, notes(data), sharedNote(data), scrolling(table), remarks(data)];
    this.node = element('section', {}, parts);
  }

  heading(column, go) {
    const click = () => {
      const turned = this.state.sort === column.key && !this.state.down;
      go({ sort: column.key, down: turned ? '1' : '' }, true);
    };
    const button = element('button', { type: 'button', title: column.note || null, click }, column.title);
    return element('th', { scope: 'col', class: column.numeric ? 'number' : null }, button);
  }

  update(state) {
    this.state = state;
    this.filters.update(state);
    const runs = filteredRuns(this.data, state);
    const sorted = this.columns.find(({ key }) => key === state.sort);
    if (sorted) runs.sort((a, b) => compare(valueOf(sorted, a), valueOf(sorted, b), state.down ? -1 : 1));
    this.headings.forEach((heading, k) => {
      const direction = state.down ? 'descending' : 'ascending';
      heading.setAttribute('aria-sort', this.columns[k] === sorted ? direction : 'none');
    });
    refill(
      this.body,
      runs.map((run) => this.row(run)),
    );
  }

  row(run) {
    const cell = (column) => {
      if (column.key === 'id') return element('th', { scope: 'row' }, runLink(this.data, run.id), webLink(run));
      const value = valueOf(column, run);
      const text = column.metric ? metricText(column.metric, value) : String(value ?? '–');
      return element('td', { class: column.numeric ? 'number' : null }, text);
    };
    return element('tr', {}, this.columns.map(cell));
  }
}

function valueOf(column, run) {
  return column.metric ? run.values[column.metric] : run[column.key];
}

// What is missing comes last, whichever way the others are sorted.
function compare(a, b, direction) {
  const [noA, noB] = [a, b].map((value) => value === null || value === undefined);
  if (noA || noB) return noA - noB;
  return direction * (typeof a === 'number' ? a - b : String(a).localeCompare(String(b)));
}

function runLink(data, run) {
  if (!data.groups.runs[run]) return run;
  return element('a', { href: link({ view: 'inspector', run }), title: 'open in the credit inspector' }, run);
}

// Where Weights & Biases shows the run; opened by a click only.
function webLink(run) {
  return run.url ? [' ', element('a', { href: run.url, rel: 'noopener noreferrer', target: '_blank' }, 'W&B')] : null;
}

function sharedNote(data) {
  const facets = Object.keys(FACETS).filter((facet) => common(data, facet) !== null);
  const said = facets.map((facet) => `${FACETS[facet].toLowerCase()} ${common(data, facet)}`);
  return said.length ? element('p', { class: 'note' }, `All runs: ${said.join(', ')}.`) : null;
}

function notes(data) {
  return data.notes.map((note) => element('p', { class: 'note' }, note));
}

function remarks(data) {
  const left = data.problems.map(({ path, reason }) => `Left out: ${path}: ${reason}`);
  const lines = [...left, ...data.unfinished.map((line) => `Not finished: ${line}`)];
  if (!lines.length) return null;
  const list = element(
    'ul',
    {},
    lines.map((line) => element('li', {}, line)),
  );
  return element(
    'details',
    { class: 'problems' },
    element('summary', {}, `Remarks on the records: ${lines.length}`),
    list,
  );
}
