// The browser of validation episodes: which row solves which game at which step, and its transcripts.

const COUNTS = '0123456789abcdefghijklmnopqrstuvwxyz'; // index = number of episodes won; a string has one character per game
const ORDERS = { panel: 'as in the panel', hard: 'hardest first', apart: 'where rows differ most' };

class EpisodesView {
  title = 'Episodes';

  constructor(data, go) {
    this.data = data;
    this.go = go;
    this.panels = data.episodes.panels;
    this.filters = new FilterBar(data, go);
    const ask = (name) => (value) => go({ [name]: value, game: '', row: '', of: '' });
    this.panel = menu('panel', this.panels.map((panel, k) => [String(k), panelName(this.panels, panel)]), ask('panel'));
    this.order = menu('order', Object.entries(ORDERS), ask('order'));
    const bar = element('div', { class: 'bar' }, labelled('Panel', this.panel), labelled('Order of games', this.order));
    this.summary = element('div', { class: 'tally' });
    this.table = scrolling(null);
    this.game = element('section', { class: 'panel played', 'aria-live': 'polite' });
    const split = element('div', { class: 'twofold' }, this.table, this.game);
    const none = 'None of these runs kept the episodes of its validations; runs of this version do.';
    const parts = this.panels.length ? [this.filters.node, bar, this.summary, split] : element('p', {}, none);
    this.node = element('section', { class: 'episodes' }, parts);
  }

  update(state) {
    if (!this.panels.length) return;
    this.filters.update(state);
    this.panel.value = this.panels[state.panel] ? state.panel : '0';
    this.order.value = ORDERS[state.order] ? state.order : 'panel';
    const panel = this.panels[this.panel.value];
    const rows = episodeRows(this.data, filteredRuns(this.data, state), panel);
    const tellable = this.tellable();
    refill(this.summary, panelSummary(panel, rows, this.data.episodes));
    refill(this.table, rows.length ? this.gamesTable(panel, rows, state, tellable) : 'None of these runs played it.');
    this.showGame(panel, rows, state);
  }

  // Games of the panel with a transcript of at least one run.
  tellable() {
    const of = Object.values(this.data.episodes.transcripts).flat();
    return new Set(of.filter(([panel]) => String(panel) === this.panel.value).map(([, , game]) => game));
  }

  gamesTable(panel, rows, state, tellable) {
    const heads = ['game', 'task'].map((name) => element('th', { scope: 'col' }, name));
    const of = (row) => element('th', { scope: 'col', class: 'number' }, `${row.name} (${row.runs.length})`);
    const places = orderedGames(panel, rows, this.order.value);
    const body = places.map((game) => {
      const [id, task] = panel.games[game];
      const chosen = state.game === String(game);
      const open = { type: 'button', class: 'open', click: () => this.open(game, '') };
      const name = element('button', open, tellable.has(game) ? `${id} ¶` : id);
      const cells = rows.map((row) => this.cell(row, game, chosen && state.row === row.name));
      return element(
        'tr',
        { class: chosen ? 'self' : null },
        element('th', { scope: 'row' }, name),
        element('td', {}, task),
        cells,
      );
    });
    const head = element('thead', {}, element('tr', {}, heads, rows.map(of)));
    return element('table', { class: 'games' }, head, element('tbody', {}, body));
  }

  cell(row, game, chosen) {
    const { won, played, first } = solved(row, game);
    const title = `${row.name}: ${won} of ${played} episodes won at the last validation`;
    const open = { type: 'button', class: 'open', title, click: () => this.open(game, row.name) };
    const since = first === null ? null : element('span', { class: 'since' }, `first: step ${first}`);
    const share = { class: chosen ? 'number share chosen' : 'number share', style: { '--share': won / played } };
    return element('td', share, element('button', open, `${won}/${played}`, since));
  }

  open(game, row) {
    this.go({ game: String(game), row, of: '', at: '' });
    this.game.scrollIntoView({ block: 'nearest' });
  }

  showGame(panel, rows, state) {
    const game = panel.games[state.game];
    if (!game) {
      refill(this.game, element('p', { class: 'small' }, 'Choose a game, or a number of one row, to see its runs.'));
      return;
    }
    const shown = rows.filter((row) => row.name === state.row);
    const told = this.transcript(state);
    refill(
      this.game,
      element('h3', {}, `${game[0]}, ${game[1]}`),
      scrolling(this.runsTable(shown.length ? shown : rows, Number(state.game), state)),
      shown.length
        ? element('button', { type: 'button', click: () => this.open(Number(state.game), '') }, 'all rows')
        : null,
      told || element('p', { class: 'small' }, this.howToRead(Number(state.game))),
    );
  }

  howToRead(game) {
    return this.tellable().has(game)
      ? 'A framed mark opens the transcript of that validation.'
      : 'Of this game no transcript was kept; games with one are marked ¶.';
  }

  runsTable(rows, game, state) {
    const steps = [...new Set(rows.flatMap((row) => row.runs.flatMap((run) => run.steps)))].sort((a, b) => a - b);
    const heads = ['row', 'seed', ...steps.map(String)].map((name, k) =>
      element('th', { scope: 'col', class: k > 1 ? 'mark' : null }, name),
    );
    const lines = rows.flatMap((row) =>
      row.runs.map((run) => {
        const marks = steps.map((step) => element('td', { class: 'mark' }, this.mark(run, row, game, step, state)));
        return element('tr', {}, element('td', {}, row.name), element('td', {}, String(run.seed)), marks);
      }),
    );
    const caption = element('caption', {}, 'Won (✓) or lost (·) at the validation of each step');
    return element('table', { class: 'marks' }, caption, element('thead', {}, element('tr', {}, heads)), element('tbody', {}, lines));
  }

  mark(run, row, game, step, state) {
    const at = run.steps.indexOf(step);
    if (at < 0) return '';
    const won = COUNTS.indexOf(run.won[at][game]);
    const text = run.repeats > 1 ? String(won) : won ? '✓' : '·';
    if (!transcriptOf(this.data, run.id, this.panel.value, step, game)) return text;
    const chosen = state.of === run.id && state.at === String(step);
    const click = () => this.go({ of: run.id, at: String(step), row: state.row || '' });
    const attributes = { type: 'button', class: 'tell', 'aria-pressed': String(chosen), title: 'read the transcript', click };
    return element('button', attributes, text);
  }

  transcript(state) {
    const found = transcriptOf(this.data, state.of, this.panel.value, Number(state.at), Number(state.game));
    return found && transcriptOfEpisode(this.data, state, found);
  }
}

// Numbers panels that share a title but have different lists of games.
function panelName(panels, panel) {
  const alike = panels.filter(({ title }) => title === panel.title);
  const more = alike.length > 1 ? `, list ${alike.indexOf(panel) + 1}` : '';
  return `${panel.title}: ${panel.games.length} games${more}`;
}

function episodeRows(data, runs, panel) {
  const several = ['model', 'scale'].some((facet) => common(data, facet) === null);
  const nameOf = (run) => (several ? `${run.row}, ${run.model}, ${run.scale}` : run.row);
  const played = ({ id, seed }) => ({ id, seed, repeats: panel.repeats, ...panel.runs[id] });
  const rows = groupedBy(runs.filter((run) => panel.runs[run.id]), nameOf);
  return [...rows].map(([name, members]) => ({ name, runs: members.map(played) }));
}

// For one game: episodes won and played at the last validation of each run, and the first step with a win.
function solved(row, game) {
  const last = row.runs.map((run) => COUNTS.indexOf(run.won.at(-1)[game]));
  const steps = row.runs.flatMap((run) => run.steps.filter((_, k) => run.won[k][game] !== '0'));
  return {
    won: last.reduce((sum, count) => sum + count, 0),
    played: row.runs.reduce((sum, run) => sum + run.repeats, 0),
    first: steps.length ? Math.min(...steps) : null,
  };
}

function orderedGames(panel, rows, order) {
  const share = (game) => rows.map((row) => solved(row, game)).map(({ won, played }) => won / played);
  const places = panel.games.map((_, game) => game);
  if (order === 'panel' || !rows.length) return places;
  const key = new Map(
    places.map((game) => [game, order === 'hard' ? mean(share(game)) : -deviation(share(game))]),
  );
  return places.sort((a, b) => key.get(a) - key.get(b) || a - b);
}

function panelSummary(panel, rows, { shown, recorded }) {
  const by = panel.games.map((_, game) => rows.filter((row) => solved(row, game).won > 0));
  const all = by.filter((one) => rows.length && one.length === rows.length).length;
  const none = by.filter((one) => !one.length).length;
  const alone = rows.map((row) => [row.name, by.filter((one) => one.length === 1 && one[0] === row).length]);
  const only = alone.filter(([, count]) => count && rows.length > 1).map(([name, count]) => `only ${name} ${count}`);
  const everyone = rows.length === 1 ? [`${rows[0].name} solves ${all}`] : [`every row solves ${all}`, `no row ${none}`];
  const solvedBy = [...everyone, ...only].join(', ');
  const left = shown < recorded ? ` ${shown} of ${recorded} validations fit into the page.` : '';
  return [
    element('p', {}, `At the last validation, of ${panel.games.length} games ${solvedBy}.`),
    element(
      'p',
      {},
      'A row solves a game when one of its episodes is won. A cell: episodes won of those that its seeds played, and ' +
        `the first validation at which one of them won. Games marked ¶ have transcripts.${left}`,
    ),
  ];
}

function transcriptOf(data, run, panel, step, game) {
  const told = data.episodes.transcripts[run] || [];
  return told.find(([at, when, which]) => String(at) === panel && when === step && which === game);
}

function transcriptOfEpisode(data, state, [, step, , start, actions, answers, valid]) {
  const texts = data.episodes.texts;
  const run = data.runs.find(({ id }) => id === state.of);
  const turn = (k) =>
    element(
      'li',
      { class: valid[k] ? null : 'invalid' },
      element('p', { class: 'action' }, texts[actions[k]] || '(none)', valid[k] ? null : ' (not in the required format)'),
      element('p', { class: 'answer' }, texts[answers[k]] || '(empty)'),
    );
  return [
    element('h4', {}, `${run.label}, seed ${run.seed}, validation at step ${step}: ${actions.length} steps`),
    element('p', { class: 'answer' }, texts[start]),
    element('ol', { class: 'turns' }, actions.map((_, k) => turn(k))),
  ];
}
