// Two runs side by side: the differences of their configurations, their last numbers, games and curves.

class CompareView {
  title = 'Compare';

  constructor(data, go) {
    this.data = data;
    this.runs = new Map(data.runs.map((run) => [run.id, run]));
    this.metrics = [...new Set(Object.values(data.curves.runs).flatMap(Object.keys))].sort();
    const runs = data.runs.map((run) => [run.id, runName(run)]);
    // Runs to open with: those that have logged something. All runs can be chosen.
    this.logged = data.runs.filter((run) => Object.keys(data.curves.runs[run.id] || {}).length);
    if (this.logged.length < 2) this.logged = data.runs;
    this.selects = ['a', 'b'].map((name) => menu(name, runs, (id) => go({ [name]: id })));
    this.metric = menu('metric', this.metrics.map((name) => [name, name]), (metric) => go({ metric }));
    this.turn = element('button', { type: 'button', click: () => go({ a: this.selects[1].value, b: this.selects[0].value }) }, 'swap');
    const controls = [labelled('Run A', this.selects[0]), labelled('Run B', this.selects[1]), this.turn];
    this.bar = element('div', { class: 'bar' }, controls, labelled('Metric', this.metric));
    this.differences = element('section', { class: 'panel differences' });
    this.legend = element('div', { class: 'legend' });
    this.chart = new Chart();
    const curves = element('section', {}, this.legend, this.chart.node);
    const few = element('p', {}, 'There are no two runs here to compare.');
    const parts = data.runs.length > 1 ? [this.bar, element('div', { class: 'twofold' }, this.differences, curves)] : few;
    this.node = element('section', { class: 'compare' }, parts);
  }

  update(state) {
    if (this.data.runs.length < 2) return;
    const a = this.runs.get(state.a) || this.logged.find(({ method }) => method === 'scpo') || this.logged[0];
    const b = this.runs.get(state.b) || counterpart(this.data, this.logged, a);
    [this.selects[0].value, this.selects[1].value] = [a.id, b.id];
    const shared = (name) => [a, b].some((run) => name in (this.data.curves.runs[run.id] || {}));
    const first = ['val/valid_seen/success_rate', 'train/success_rate'].find(shared) || this.metrics[0];
    this.metric.value = this.metrics.includes(state.metric) ? state.metric : first;
    const rows = [a, b].map((run, k) => pairedCurve(this.data, run, this.metric.value, k, a.style));
    refill(this.legend, rows.map((row) => element('span', { class: 'entry' }, lineSample(row.style), row.name)));
    this.chart.show(rows.filter((row) => row.runs.length), this.metric.value);
    refill(this.differences, configurationDifferences(this.data, a, b), lastNumbers(this.data, a, b), gamesApart(this.data, a, b));
  }
}

function runName(run) {
  return `${run.label}, seed ${run.seed}: ${run.id}`;
}

// The run that differs least in its configuration: first among the same seed of other rows, else among all others.
function counterpart(data, runs, a) {
  const of = (run) => data.configurations.runs[run.id];
  const differences = (run) => of(run).filter((value, k) => value !== of(a)[k]).length;
  const others = runs.filter((run) => run !== a);
  const paired = others.filter((run) => run.label !== a.label && run.seed === a.seed && run.env === a.env);
  return (paired.length ? paired : others).reduce((best, run) => (differences(run) < differences(best) ? run : best));
}

function pairedCurve(data, run, metric, k, styleOfA) {
  const points = curvePoints(data, run, metric);
  const own = lineStyle(run.style);
  // Two runs of one method share a style, so the second is drawn dashed in the colour of the text.
  const style = k && run.style.colour === styleOfA.colour ? { colour: own.colour, paint: 'var(--ink)', dash: '5 3' } : own;
  const runs = points.length ? [{ points }] : [];
  return { name: `${'AB'[k]}: ${run.label}, seed ${run.seed}`, style, runs, mean: runs.length ? meanCurve(runs) : [] };
}

function configurationDifferences(data, a, b) {
  const { keys, values, runs } = data.configurations;
  const of = (run, k) => values[k][runs[run.id][k]];
  const lines = keys
    .map((key, k) => [key, of(a, k), of(b, k)])
    .filter(([, one, other]) => one !== other)
    .map(([key, ...both]) => [key, ...both.map((value) => value ?? '–')]);
  if (!lines.length) return [element('h3', {}, 'Configuration'), element('p', {}, 'Nothing differs.')];
  const table = simpleTable(['setting', 'A', 'B'], lines, { class: 'settings', words: 3 });
  const count = lines.length === 1 ? '1 difference' : `${lines.length} differences`;
  return [element('h3', {}, `Configuration: ${count}`), scrolling(table)];
}

function lastNumbers(data, a, b) {
  const lines = data.columns
    .map(({ title, metric }) => [title, metric, a.values[metric], b.values[metric]])
    .filter(([, , one, other]) => one !== undefined || other !== undefined)
    .map(([title, metric, one, other]) => [
      title,
      metricText(metric, one),
      metricText(metric, other),
      one === undefined || other === undefined ? '–' : apart(metric, one, other),
    ]);
  if (!lines.length) return null;
  const table = simpleTable(['last validation, mean credit', 'A', 'B', 'A − B'], lines, { class: 'last', words: 1 });
  return [element('h3', {}, 'Numbers'), scrolling(table)];
}

function apart(metric, one, other) {
  if (isShare(metric)) return signed(100 * (one - other), 1);
  // As many digits as the two values have: auxiliary rewards differ in the fourth decimal.
  return `${one > other ? '+' : ''}${number(one - other)}`;
}

// Counts of the games that both runs played: won at the last validation by both, by only one, by neither.
function gamesApart(data, a, b) {
  const lines = data.episodes.panels.flatMap((panel, k) => {
    const [ofA, ofB] = [a, b].map((run) => panel.runs[run.id]?.won.at(-1));
    if (!ofA || !ofB) return [];
    const count = (inA, inB) => panel.games.filter((_, game) => (ofA[game] !== '0') === inA && (ofB[game] !== '0') === inB).length;
    const name = element('a', { href: link({ view: 'episodes', panel: k, order: 'apart' }) }, panel.title);
    return [[name, ...[[true, true], [true, false], [false, true], [false, false]].map(([x, y]) => String(count(x, y)))]];
  });
  if (!lines.length) return null;
  const table = simpleTable(['games won at the last validation', 'by both', 'only A', 'only B', 'neither'], lines, { class: 'apart', words: 1 });
  return [element('h3', {}, 'Games'), scrolling(table)];
}
