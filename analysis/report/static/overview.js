// What a reader needs first: what this is about, the headline numbers, who ran what, and which runs need a look.

const ABOUT = [
  'In group-based reinforcement learning a step is credited with the outcome of its rollout: two near-identical steps, ' +
    'one in a rollout that succeeded and one in a sibling that failed later, get opposite credit.',
  'SCPO takes a successful sibling of the same task as a reference, finds the steps of each failed sibling that make ' +
    'the same progress in the same order, and adds credit to their returns. All else of its host method stays as it is.',
  'The credit inspector shows it step by step on sampled groups.',
];

function overviewView(data) {
  const table = headline(data.tables);
  const parts = [
    element('h2', {}, 'What this is'),
    ABOUT.map((text) => element('p', { class: 'about' }, text)),
    data.telling
      ? element('p', {}, element('a', { href: link({ view: 'inspector', ...data.telling }) }, 'The most telling step here'))
      : null,
    element('h2', {}, 'Headline'),
    table ? outputTable(table, '') : element('p', {}, 'No table could be built from these runs yet.'),
    notes(data),
    element('h2', {}, 'Who ran what'),
    scrolling(whoRan(data)),
    element('h2', {}, 'Health'),
    healthList(data),
  ];
  return { title: 'Overview', node: element('section', { class: 'overview' }, parts) };
}

// The study's answers, else the main table, else an ablation, else whichever there is.
function headline(tables) {
  const wanted = ['tab_study', 'tab_main', 'tab_ablation'];
  const found = wanted.map((name) => tables.find((table) => table.name.startsWith(name)));
  return found.find(Boolean) || tables[0];
}

function whoRan(data) {
  const rows = groupedBy(data.runs, (run) => [run.label, run.env, run.model, run.scale].join('\n'));
  const lines = [...rows].map(([key, runs]) => [...key.split('\n'), String(runs.length), states(runs)]);
  return simpleTable(['row', 'environment', 'model', 'scale', 'runs', 'states'], lines, { class: 'ran', words: 4 });
}

function states(runs) {
  return [...groupedBy(runs, (run) => run.state)].map(([state, some]) => `${some.length} ${state}`).join(', ');
}

function healthList(data) {
  if (!data.health.length) return element('p', {}, 'The rules of conf/health.yaml have nothing to say of these runs.');
  const line = ({ run, text }) =>
    element('li', {}, element('a', { href: link({ view: 'curves', find: run }) }, run), `: ${text}`);
  return element('ul', { class: 'health' }, data.health.map(line));
}
