// Learning curves of each run, with mean and spread over the seeds of a row.

const CHART = { width: 900, height: 420, left: 62, right: 16, top: 14, bottom: 44 };

class CurvesView {
  title = 'Curves';

  constructor(data, go) {
    this.data = data;
    this.state = {};
    this.hidden = new Set(); // names of the rows that the reader has switched off
    this.metrics = [...new Set(Object.values(data.curves.runs).flatMap(Object.keys))].sort();
    this.first = this.metrics.find((name) => name === 'train/success_rate') || this.metrics[0];
    this.filters = new FilterBar(data, go);
    this.metric = menu('metric', this.metrics.map((name) => [name, name]), (metric) => go({ metric }));
    this.legend = element('div', { class: 'legend', role: 'group', 'aria-label': 'Rows shown' });
    this.names = []; // of the rows that pass the filters
    const all = element('button', { type: 'button', click: () => this.tick(this.names) }, 'all');
    const none = element('button', { type: 'button', click: () => this.tick([]) }, 'none');
    this.ticks = element('div', { class: 'buttons ticks' }, all, none);
    this.chart = new Chart();
    const bar = element('div', { class: 'bar' }, labelled('Metric', this.metric));
    const explained = element(
      'p',
      { class: 'note' },
      "Thin lines are runs, thick ones the mean over a row's seeds at the steps that all of them have, bands ± one " +
        `standard deviation. At most ${data.points} points of a curve are kept.`,
    );
    const parts = [this.filters.node, bar, notes(data), this.ticks, this.legend, this.chart.node, explained];
    this.node = element('section', {}, parts);
  }

  update(state) {
    this.state = state;
    this.filters.update(state);
    const metric = this.metrics.includes(state.metric) ? state.metric : this.first;
    this.metric.value = metric;
    const rows = curveRows(this.data, filteredRuns(this.data, state), metric);
    this.names = rows.map((row) => row.name);
    refill(
      this.legend,
      rows.map((row) => this.legendEntry(row)),
    );
    const visible = rows.filter((row) => !this.hidden.has(row.name));
    this.chart.show(visible, metric);
  }

  tick(names) {
    this.hidden = new Set(this.names.filter((name) => !names.includes(name)));
    this.update(this.state);
  }

  legendEntry(row) {
    const change = () => {
      if (box.checked) this.hidden.delete(row.name);
      else this.hidden.add(row.name);
      this.update(this.state);
    };
    const box = element('input', { type: 'checkbox', checked: !this.hidden.has(row.name), change });
    const label = element('label', {}, box, lineSample(row.style), `${row.name} (${row.runs.length})`);
    const only = { type: 'button', class: 'only', title: `only ${row.name}`, click: () => this.tick([row.name]) };
    return element('span', { class: 'entry' }, label, element('button', only, 'only'));
  }
}

class Chart {
  constructor() {
    this.drawing = element('div', { class: 'chart' });
    this.readout = element('div', { class: 'readout', 'aria-live': 'polite' });
    this.node = element('div', {}, this.drawing, this.readout);
    this.at = null; // the step that is read out
  }

  show(rows, metric) {
    Object.assign(this, { rows, metric, at: null });
    const points = rows.flatMap((row) => row.runs.flatMap((run) => run.points));
    if (!points.length) {
      refill(this.drawing, element('p', {}, 'None of these runs has logged this metric.'));
      refill(this.readout);
      return;
    }
    this.steps = [...new Set(points.map(([step]) => step))].sort((a, b) => a - b);
    const [low, high] = valueRange(rows, points, metric);
    const [first, last] = [this.steps[0], this.steps.at(-1)];
    this.x = linear(first, last, CHART.left, CHART.width - CHART.right);
    const y = linear(low, high, CHART.height - CHART.bottom, CHART.top);
    const ends = { y1: CHART.top, y2: CHART.height - CHART.bottom };
    this.cursor = drawn('line', { class: 'cursor', visibility: 'hidden', ...ends });
    const wholeSteps = ticks(first, last, 8).filter(Number.isInteger);
    const frame = axes(this.x, y, wholeSteps, ticks(low, high, 5), metric);
    const curves = rows.map((row) => curve(row, this.x, y));
    const size = { viewBox: `0 0 ${CHART.width} ${CHART.height}` };
    const name = { tabindex: '0', role: 'img', 'aria-label': `${metric} over training steps` };
    refill(this.drawing, this.listening(drawn('svg', { ...size, ...name }, frame, curves, this.cursor)));
    refill(this.readout, element('p', {}, 'Point at the curves, or move with ← and →, to read their values.'));
  }

  listening(svg) {
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect();
      const place = ((event.clientX - box.left) / box.width) * CHART.width;
      const distance = (step) => Math.abs(this.x(step) - place);
      this.read(this.steps.reduce((best, step) => (distance(step) < distance(best) ? step : best)));
    });
    svg.addEventListener('keydown', (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      const next = this.at === null ? 0 : this.steps.indexOf(this.at) + move;
      this.read(this.steps[Math.min(this.steps.length - 1, Math.max(0, next))]);
    });
    return svg;
  }

  read(step) {
    this.at = step;
    for (const end of ['x1', 'x2']) this.cursor.setAttribute(end, this.x(step));
    this.cursor.setAttribute('visibility', 'visible');
    const lines = this.rows.map((row) => readLine(row, step, this.metric));
    refill(this.readout, element('p', {}, `step ${step}`), element('ul', {}, lines));
  }
}

// One line per row of a table, environment, model and scale, in the style of the row's method.
function curveRows(data, runs, metric) {
  const several = ['env', 'model', 'scale'].some((facet) => common(data, facet) === null);
  const nameOf = (run) => (several ? `${run.row}, ${run.env}, ${run.model}, ${run.scale}` : run.row);
  const logged = runs.filter((run) => data.curves.runs[run.id]?.[metric]);
  return [...groupedBy(logged, nameOf)].map(([name, members]) => {
    const lines = members.map((run) => ({ points: curvePoints(data, run, metric) }));
    return { name, style: lineStyle(members[0].style), runs: lines, mean: meanCurve(lines) };
  });
}

function curvePoints(data, run, metric) {
  const [place, values] = data.curves.runs[run.id]?.[metric] || [];
  return values ? data.curves.steps[place].map((step, k) => [step, values[k]]) : [];
}

function meanCurve(runs) {
  const known = runs.map((run) => new Map(run.points));
  const shared = [...known[0].keys()].filter((step) => known.every((one) => one.has(step)));
  return shared.map((step) => {
    const values = known.map((one) => one.get(step));
    return { step, mean: mean(values), spread: deviation(values) };
  });
}

function valueRange(rows, points, metric) {
  if (isShare(metric)) return [0, 1];
  const bands = rows.flatMap((row) => row.mean.flatMap((one) => [one.mean - one.spread, one.mean + one.spread]));
  const values = [0, ...bands, ...points.map(([, value]) => value)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return [low, high > low ? high : low + 1];
}

function readLine(row, step, metric) {
  const found = row.runs.map((run) => run.points.find(([at]) => at === step)?.[1]);
  const values = found.filter((value) => value !== undefined);
  if (!values.length) return null;
  const one = row.mean.find((entry) => entry.step === step);
  const several = one && values.length > 1;
  const summary = () => `${metricText(metric, one.mean)} ± ${metricText(metric, one.spread)}`;
  const text = several ? summary() : values.map((value) => metricText(metric, value)).join(', ');
  const swatch = element('span', { class: 'swatch', style: { background: row.style.colour, 'background-color': row.style.paint } });
  return element('li', {}, swatch, `${row.name}: `, element('b', {}, text), ` (n = ${values.length})`);
}

function axes(x, y, steps, values, metric) {
  const [left, right, bottom] = [CHART.left, CHART.width - CHART.right, CHART.height - CHART.bottom];
  const name = (value) => (isShare(metric) ? `${Math.round(100 * value)} %` : number(value));
  const line = (value) => [
    drawn('line', { x1: left, x2: right, y1: y(value), y2: y(value) }),
    drawn('text', { x: left - 8, y: y(value) + 4, 'text-anchor': 'end' }, name(value)),
  ];
  const mark = (step) => drawn('text', { x: x(step), y: bottom + 18, 'text-anchor': 'middle' }, String(step));
  const title = { x: (left + right) / 2, y: CHART.height - 6, 'text-anchor': 'middle' };
  return drawn('g', { class: 'axes' }, values.map(line), steps.map(mark), drawn('text', title, 'training step'));
}

function curve(row, x, y) {
  const path = (points) =>
    points.map(([step, value], k) => `${k ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  const { colour, paint, dash } = row.style;
  const pen = { fill: 'none', stroke: colour, style: { stroke: paint }, 'stroke-dasharray': dash };
  const line = (points, stroke) => drawn('path', { d: path(points), ...pen, ...stroke });
  if (row.runs.length === 1) return line(row.runs[0].points, { 'stroke-width': 2.2 });
  const edge = (side) => row.mean.map((one) => [one.step, one.mean + side * one.spread]);
  const band = `${path([...edge(1), ...edge(-1).reverse()])}Z`;
  return drawn(
    'g',
    {},
    drawn('path', { d: band, fill: colour, style: { fill: paint }, opacity: 0.13 }),
    row.runs.map((run) => line(run.points, { 'stroke-width': 0.8, opacity: 0.55 })),
    line(edge(0), { 'stroke-width': 2.5 }),
  );
}

function lineSample({ colour, paint, dash }) {
  const stroke = { stroke: colour, style: { stroke: paint }, 'stroke-width': 2.5, 'stroke-dasharray': dash };
  const line = drawn('line', { x1: 0, x2: 30, y1: 5, y2: 5, ...stroke });
  return drawn('svg', { width: 30, height: 10, 'aria-hidden': 'true' }, line);
}
