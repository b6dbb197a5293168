// The similarity matrix M, with boxes around credited cells and the walk of j as a line. Reference steps run downwards and
// failed steps to the right, in time order. The walk follows the processing order, so its line may jump back.

// In pixels; cells are as large as fits, up to `largest`.
const MAP = { left: 30, top: 24, width: 270, height: 300, largest: 26, least: 110 };

class Heatmap {
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.shown = null; // the group, the match, the size of a cell, the drawing and its layers
    this.figure = element('div', { class: 'map' });
    this.readout = element('p', { class: 'readout', 'aria-live': 'polite' });
    this.slider = element('input', {
      type: 'range',
      min: 0,
      name: 'walk',
      input: () => this.walkTo(this.slider.value),
    });
    this.turn = element('output');
    this.node = element(
      'section',
      { class: 'panel', 'aria-label': 'Similarity matrix' },
      element('h3', {}, 'Matrix M and walk of j'),
      this.figure,
      this.readout,
      element('label', { class: 'walk' }, element('span', {}, 'Walk'), this.slider),
      this.turn,
      mapKey(),
    );
  }

  show(group, match) {
    const known = match.left.length > 0 && match.right.length > 0;
    this.slider.disabled = !known;
    this.shown = known ? this.draw(group, match) : null;
    refill(this.readout, known ? 'Point at a cell to read it, click it to choose the failed step.' : '');
    if (!known) {
      refill(this.turn);
      refill(this.figure, element('p', {}, 'There is no matrix: the step filter left nothing of one side.'));
      return;
    }
    refill(this.figure, this.shown.svg);
    this.slider.max = match.walk.length;
    this.slider.value = match.walk.length;
    this.walkTo(match.walk.length);
  }

  draw(group, match) {
    const [rows, across] = [match.left.length, match.right.length];
    const size = Math.min(MAP.largest, (MAP.width - MAP.left) / across, (MAP.height - MAP.top) / rows);
    const width = Math.max(MAP.least, MAP.left + across * size + 2);
    const height = MAP.top + rows * size + 2;
    const name = `Similarity of ${rows} reference steps and ${across} failed steps`;
    const [walk, cross] = [drawn('g', { class: 'trace' }), drawn('g', { class: 'cross' })];
    const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': name }, [
      mapLabels(match, size),
      mapCells(match, size),
      mapBoxes(match, size),
      walk,
      cross,
    ]);
    svg.addEventListener('pointermove', (event) => this.atCell(event, (u, v) => this.tell(u, v)));
    svg.addEventListener('click', (event) => this.atCell(event, (u, v) => this.onChoose(match.right[v].time)));
    return { group, match, size, svg, walk, cross };
  }

  atCell(event, act) {
    const { match, size, svg } = this.shown;
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const v = Math.floor(((event.clientX - box.left) * scale - MAP.left) / size);
    const u = Math.floor(((event.clientY - box.top) * scale - MAP.top) / size);
    if (u >= 0 && v >= 0 && u < match.left.length && v < match.right.length) act(u, v);
  }

  // Shows the numbers of one cell.
  tell(u, v) {
    const { group, match } = this.shown;
    const value = match.similarity[u][v];
    const pair = match.credited.get(v);
    const k = match.turn.get(v);
    const cell = `reference ${match.left[u].time} × failed ${match.right[v].time}`;
    const parts = [
      `${cell}: M = ${fixed(value, 3)} ${value >= group.settings.theta ? '≥' : '<'} θ`,
      pair && pair.u === u ? `credited ${fixed(pair.credit, 3)}` : null,
      k === undefined
        ? 'not processed'
        : `processed ${k + 1} of ${match.right.length}, then j = ${number(match.walk[k][1])}`,
    ];
    refill(this.readout, parts.filter(Boolean).join(' · '));
  }

  // Draws the first `count` steps of the walk.
  walkTo(count) {
    const { match, size, walk } = this.shown;
    const done = match.walk.slice(0, Number(count));
    const points = done
      .filter(([, j]) => j >= 0)
      .map(([v, j]) => ({ v, x: centre(MAP.left, v, size), y: centre(MAP.top, j, size) }));
    const lines = points.slice(1).map((to, k) => ({ from: points[k], to, back: to.v < points[k].v }));
    const line = ({ from, to }, kind) => drawn('line', { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: kind });
    refill(
      walk,
      lines.map((one) => line(one, 'halo')),
      lines.map((one) => line(one, one.back ? 'back' : 'forth')),
      points.map(({ x, y }) => drawn('circle', { cx: x, cy: y, r: Math.max(1.6, size / 8) })),
    );
    this.turn.value = done.length ? turnLine(match, done) : 'before the first step: j = −1';
  }

  // Frames the row or column of the chosen step.
  choose(at) {
    if (!this.shown) return;
    const { match, size, cross } = this.shown;
    const place = (steps, side) => (at?.side === side ? steps.findIndex((step) => step.time === at.time) : -1);
    const [u, v] = [place(match.left, 'r'), place(match.right, 'f')];
    const [wide, high] = [match.right.length * size, match.left.length * size];
    const row = { x: MAP.left, y: MAP.top + u * size, width: wide, height: size };
    const column = { x: MAP.left + v * size, y: MAP.top, width: size, height: high };
    refill(cross, u >= 0 ? drawn('rect', row) : null, v >= 0 ? drawn('rect', column) : null);
    if (v >= 0) this.tell(match.credited.get(v)?.u ?? mostSimilar(match, v), v);
  }
}

function centre(start, place, size) {
  return start + (place + 0.5) * size;
}

function mostSimilar(match, v) {
  return match.similarity.reduce((best, row, u) => (row[v] > match.similarity[best][v] ? u : best), 0);
}

function turnLine(match, done) {
  const [v, j] = done.at(-1);
  const place = j < 0 ? 'j = −1' : `j = ${j}, reference step ${match.left[j].time}`;
  return `${done.length} of ${match.right.length} processed; last: failed step ${match.right[v].time}, then ${place}`;
}

function mapCells(match, size) {
  const cell = (value, u, v) => {
    const place = { x: MAP.left + v * size, y: MAP.top + u * size, width: size, height: size };
    return drawn('rect', { ...place, style: { '--share': value } });
  };
  const rows = match.similarity.map((row, u) => row.map((value, v) => cell(value, u, v)));
  return drawn('g', { class: 'cells' }, rows);
}

function mapBoxes(match, size) {
  const inset = Math.min(1, size / 10);
  const side = size - 2 * inset;
  const box = ({ u, v }) => ({
    x: MAP.left + v * size + inset,
    y: MAP.top + u * size + inset,
    width: side,
    height: side,
  });
  const boxes = creditedPairs(match).map((pair) => drawn('rect', box(pair)));
  return drawn('g', { class: 'boxes' }, boxes);
}

// Times of the steps, as many as fit.
function mapLabels(match, size) {
  const every = Math.ceil(14 / size);
  const some = (steps) => steps.map((step, k) => [k, String(step.time)]).filter(([k]) => k % every === 0);
  const down = ([u, time]) =>
    drawn('text', { x: MAP.left - 5, y: centre(MAP.top, u, size) + 3.5, 'text-anchor': 'end' }, time);
  const across = ([v, time]) =>
    drawn('text', { x: centre(MAP.left, v, size), y: MAP.top - 5, 'text-anchor': 'middle' }, time);
  const axes = drawn('text', { x: 2, y: 9 }, 'reference ↓  failed →');
  return drawn('g', { class: 'labels' }, some(match.left).map(down), some(match.right).map(across), axes);
}

function mapKey() {
  return element(
    'p',
    { class: 'key' },
    element('span', {}, '0 '),
    element('span', { class: 'ramp', 'aria-hidden': 'true' }),
    element('span', {}, ' 1'),
    element('span', { class: 'boxed' }, 'credited'),
    element('span', {}, '● j after each step, dotted where the order goes back in time'),
  );
}
