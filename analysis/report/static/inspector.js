// The credit inspector: which run, training step, group and failed sibling to look at, and the step that is chosen.

const LEVELS = { run: 'Run', step: 'Training step', group: 'Group', sibling: 'Failed sibling' };

const KEYS = [
  ['↑ ↓', 'previous, next step of the column'],
  ['← →', 'reference, failed column'],
  ['n p', 'next, previous credited step'],
  ['[ ]', 'previous, next failed sibling'],
  ['{ }', 'previous, next sampled group, over all training steps'],
  ['Esc', 'no step'],
  ['?', 'these keys'],
];

class Inspector {
  title = 'Credit inspector';

  constructor(data, go) {
    this.groups = data.groups;
    this.runs = Object.keys(data.groups.runs);
    this.go = go;
    this.now = null; // what the page shows: record, group, match and the chosen place `at`
    this.selects = Object.fromEntries(Object.keys(LEVELS).map((level) => [level, this.select(level)]));
    this.columns = new StepColumns((side, time) => go({ at: `${side}${time}` }, true));
    this.heatmap = new Heatmap((time) => go({ at: `f${time}` }, true));
    this.details = new Details();
    this.summary = element('div', { class: 'summary' });
    this.amiss = element('div', { class: 'amiss', role: 'status' });
    this.telling = data.telling;
    this.split = element('div', { class: 'split' }, this.columns.node, this.heatmap.node, this.details.node);
    this.help = keyHelp();
    const parts = this.runs.length ? [this.bar(), this.amiss, this.summary, this.split, this.help] : withoutGroups();
    this.node = element('section', { class: 'inspector' }, parts, sampledNote(data.groups));
  }

  // A choice clears all lower levels: a new run clears the step, the group and the sibling.
  select(level) {
    const levels = [...Object.keys(LEVELS), 'at'];
    const lower = levels.slice(levels.indexOf(level) + 1);
    const cleared = Object.fromEntries(lower.map((name) => [name, '']));
    return menu(level, [], (value) => this.go({ [level]: value, ...cleared }));
  }

  bar() {
    const button = (title, text, click) =>
      element('button', { type: 'button', title, 'aria-label': title, click }, text);
    return element(
      'div',
      { class: 'bar' },
      Object.entries(LEVELS).map(([level, text]) => labelled(text, this.selects[level])),
      element(
        'span',
        { class: 'buttons' },
        button('previous failed sibling', '[', () => this.moveSibling(-1)),
        button('next failed sibling', ']', () => this.moveSibling(1)),
        button('previous sampled group', '{', () => this.moveGroup(-1)),
        button('next sampled group', '}', () => this.moveGroup(1)),
        button('keys', '?', () => this.help.showModal()),
      ),
    );
  }

  // `opened`: the reader comes from another view or page, so the page must not scroll to the chosen step.
  update(state, opened = false) {
    if (!this.runs.length) return;
    const telling = state.run ? {} : this.telling || {};
    state = { ...telling, ...state };
    const run = this.runs.includes(state.run) ? state.run : this.runs[0];
    const steps = this.groups.runs[run];
    const step = steps.find((one) => String(one.step) === state.step) || firstWithGroups(steps);
    const record = step.groups.find((one) => String(one.group) === state.group) || step.groups[0];
    const unknown = [
      ['run', run],
      ['step', String(step.step)],
      ['group', String(record?.group)],
    ].filter(([name, shown]) => state[name] && state[name] !== shown);
    refill(this.amiss, unknown.map(([name, shown]) => notHere(name, state[name], shown)));
    const { selects } = this;
    const runs = this.runs.map((one) => [one, one]);
    choose(selects.run, runs, run);
    const lines = steps.map((one) => [one.step, stepLine(one)]);
    choose(selects.step, lines, step.step);
    const tasks = step.groups.map((one) => [one.group, `${one.group}: ${one.task}`]);
    choose(selects.group, tasks, record?.group);
    this.split.hidden = !record;
    if (record) this.showRecord(run, step, record, state, opened);
    else this.showNothing(step);
  }

  showNothing(step) {
    this.now = null;
    refill(this.selects.sibling);
    const none = `none of the ${step.groups_in_batch} groups had both a success and a failure`;
    refill(this.summary, element('p', {}, `At training step ${step.step} ${none}: there was nothing to credit.`));
  }

  showRecord(run, step, record, state, opened) {
    if (this.now?.record !== record) this.now = { record, group: readGroup(record, this.groups.settings[run]) };
    const { group } = this.now;
    const match = group.matches.find((one) => String(one.trajectory) === state.sibling) || mostCredited(group.matches);
    const siblings = group.matches.map((one) => [one.trajectory, siblingLine(group, one)]);
    choose(this.selects.sibling, siblings, match.trajectory);
    if (this.now.match !== match) {
      this.now.match = match;
      const place = `Run ${run}, training step ${step.step}, group ${record.group}`;
      const lines = summaryLines(group, match, step).map((line) => element('p', {}, line));
      refill(this.summary, element('p', { class: 'printed' }, place), lines);
      this.columns.show(group, match);
      this.heatmap.show(group, match);
    }
    const at = state.at ? readPlace(state.at, group, match) : firstCredited(match);
    if (!this.node.hidden) this.keepAddress({ run, step: step.step, group: record.group, sibling: match.trajectory });
    this.now.at = at;
    this.columns.choose(at, Boolean(state.at) && !opened);
    this.heatmap.choose(at);
    this.details.show(group, match, at);
  }

  // Writes what is shown into the address, so that a copied link shows the same.
  keepAddress(shown) {
    const next = link({ view: 'inspector', ...readState(), ...shown });
    if (next === location.hash) return;
    history.replaceState(history.state, '', next);
    drawnHash = next;
  }

  // Handles a key; true if it has a meaning here.
  press(key) {
    if (!this.runs.length) return false;
    const anywhere = {
      '{': () => this.moveGroup(-1),
      '}': () => this.moveGroup(1),
      '?': () => this.help.showModal(),
    };
    const inGroup = {
      ArrowUp: () => this.moveStep(-1),
      ArrowDown: () => this.moveStep(1),
      ArrowLeft: () => this.cross('r'),
      ArrowRight: () => this.cross('f'),
      n: () => this.moveCredited(1),
      p: () => this.moveCredited(-1),
      '[': () => this.moveSibling(-1),
      ']': () => this.moveSibling(1),
      Escape: () => this.go({ at: 'none' }, true),
    };
    const move = anywhere[key] || (this.now && inGroup[key]);
    move?.();
    return Boolean(move);
  }

  moveSibling(by) {
    const matches = this.now?.group.matches || [];
    const next = matches[matches.indexOf(this.now?.match) + by];
    if (next) this.go({ sibling: next.trajectory, at: '' });
  }

  // A training step without an active group is a place of its own: one comes past it.
  moveGroup(by) {
    const places = this.runs.flatMap((run) =>
      this.groups.runs[run].flatMap((step) => step.groups.map((record) => ({ run, step: step.step, record }))),
    );
    const next = places[places.findIndex(({ record }) => record === this.now?.record) + by];
    if (next) this.go({ run: next.run, step: next.step, group: next.record.group, sibling: '', at: '' });
  }

  moveStep(by) {
    const { side, time } = this.now.at || { side: 'f', time: by > 0 ? -1 : Infinity };
    const last = stepsOf(this.now, side).length - 1;
    this.go({ at: `${side}${Math.min(last, Math.max(0, time + by))}` }, true);
  }

  // To the partner on the other side; without one, to the step of the same time.
  cross(side) {
    const { at, match } = this.now;
    if (!at || at.side === side) return;
    const [partner] = partnersOf(match, at);
    this.go({ at: `${side}${partner ?? Math.min(at.time, stepsOf(this.now, side).length - 1)}` }, true);
  }

  moveCredited(by) {
    const { at, match } = this.now;
    const times = creditedSteps(match).map((step) => step.time);
    const here = at?.side === 'f' ? at.time : by > 0 ? -1 : Infinity;
    const next = by > 0 ? times.find((time) => time > here) : times.findLast((time) => time < here);
    if (next !== undefined) this.go({ at: `f${next}` }, true);
  }
}

function stepsOf({ group, match }, side) {
  return side === 'r' ? group.reference : match.steps;
}

function firstWithGroups(steps) {
  return steps.find((one) => one.groups.length) || steps[0];
}

function mostCredited(matches) {
  const sum = (match) => creditedSteps(match).reduce((total, step) => total + step.credit, 0);
  return matches.reduce((best, match) => (sum(match) > sum(best) ? match : best));
}

function firstCredited(match) {
  const [step] = creditedSteps(match);
  return step ? { side: 'f', time: step.time } : null;
}

// "f7": failed step 7; "r3": reference step 3.
function readPlace(text, group, match) {
  const [, side, digits] = /^([rf])(\d+)$/.exec(text) || [];
  const time = Number(digits);
  return side && time < stepsOf({ group, match }, side).length ? { side, time } : null;
}

function notHere(name, wanted, shown) {
  const text = `The address asks for ${name} ${wanted}, which this page does not have; shown is ${name} ${shown}.`;
  return element('p', { class: 'note' }, text);
}

function stepLine(step) {
  return `${step.step} (${step.groups.length} of ${step.active_groups} active groups)`;
}

function keyHelp() {
  const rows = KEYS.map(([keys, what]) =>
    element('tr', {}, element('th', { scope: 'row' }, element('kbd', {}, keys)), element('td', {}, what)),
  );
  const close = element('button', { type: 'button', click: () => dialog.close() }, 'Close');
  const table = element('table', {}, element('tbody', {}, rows));
  const dialog = element('dialog', { 'aria-label': 'Keys' }, element('h2', {}, 'Keys'), table, close);
  return dialog;
}

function withoutGroups() {
  const where = 'Runs of a method with a shaper (SCPO and its variants) sample them as they train.';
  return element('p', {}, `No run here has recorded groups. ${where}`);
}

function sampledNote({ shown, recorded }) {
  if (shown === recorded) return null;
  const room = `This page has room for ${shown} of the ${recorded} sampled training steps, taken evenly from all runs.`;
  return element('p', { class: 'note' }, `${room} Make it again with a larger --megabytes to see more.`);
}
