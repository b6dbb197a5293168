// The address after # holds everything that was chosen, so that a view can be linked to: #view=inspector&run=...

const data = JSON.parse(document.getElementById('data').textContent);

function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function link(state) {
  const chosen = Object.entries(state).filter(([, value]) => value !== '' && value !== undefined);
  return `#${new URLSearchParams(chosen)}`;
}

// Small moves replace the entry in the history, so that Back leaves the group and not each of its steps. The page is
// drawn at once, so that a key held down loses no step.
function go(changes, small = false) {
  const next = link({ view: shownView(), ...readState(), ...changes });
  if (next === location.hash) return;
  if (small) location.replace(next);
  else location.hash = next;
  render();
}

const missing = (prefix) => data.missing.filter(({ name }) => name.startsWith(prefix));
const views = {
  overview: overviewView(data),
  inspector: new Inspector(data, go),
  runs: new RunsView(data, go),
  curves: new CurvesView(data, go),
  compare: new CompareView(data, go),
  episodes: new EpisodesView(data, go),
  tables: outputsView('Tables', data.tables.map((table) => outputTable(table)), missing('tab_')),
  figures: outputsView('Figures', data.figures.map(outputFigure), missing('fig_')),
};

function shownView() {
  const { view } = readState();
  if (Object.hasOwn(views, view)) return view;
  return 'overview';
}

let drawnHash = null;
let drawnView = null;

function render() {
  drawnHash = location.hash;
  const shown = shownView();
  const opened = shown !== drawnView;
  drawnView = shown;
  for (const [name, view] of Object.entries(views)) {
    view.node.hidden = name !== shown;
    tabs[name].setAttribute('aria-current', name === shown ? 'page' : 'false');
  }
  views[shown].update?.(readState(), opened);
  if (opened) scrollTo(0, 0); // the last view may have been scrolled down
  document.title = `SCPO report: ${views[shown].title}`;
}

const tabs = Object.fromEntries(
  Object.entries(views).map(([name, view]) => [name, element('a', { href: link({ view: name }) }, view.title)]),
);
document.getElementById('views').append(...Object.values(tabs));
document.getElementById('main').append(...Object.values(views).map((view) => view.node));

addEventListener('hashchange', () => location.hash !== drawnHash && render());
addEventListener('keydown', (event) => {
  const typing = event.target.closest?.('input, select, textarea, dialog, [role=img]');
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (views[shownView()].press?.(event.key)) event.preventDefault();
});
render();
