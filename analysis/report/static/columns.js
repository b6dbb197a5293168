// Reference and failed steps side by side, with a line from each credited step to the reference step that it matched.

class StepColumns {
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.match = null;
    this.cards = { r: new Map(), f: new Map() }; // by side and time
    this.heads = { r: element('h3'), f: element('h3') };
    this.lists = { r: stepList('Reference steps'), f: stepList('Failed steps') };
    this.links = drawn('svg', { class: 'links', 'aria-hidden': 'true' });
    const rows = [this.heads.r, element('span'), this.heads.f, this.lists.r, this.links, this.lists.f];
    this.node = element('div', { class: 'columns' }, rows);
    new ResizeObserver(() => this.drawLinks()).observe(this.node);
  }

  show(group, match) {
    this.match = match;
    refill(this.heads.r, `Reference: sibling ${group.record.reference.trajectory}, ${counted(group.reference)}`);
    refill(this.heads.f, `Failed: sibling ${match.trajectory}, ${counted(match.steps)}`);
    this.fill('r', group.reference);
    this.fill('f', match.steps);
    this.drawLinks();
  }

  fill(side, steps) {
    const card = (step) => stepCard(step, side, () => this.onChoose(side, step.time));
    this.cards[side] = new Map(steps.map((step) => [step.time, card(step)]));
    refill(this.lists[side], [...this.cards[side].values()]);
  }

  // Draws a line between the middles of each credited pair's cards; called again when the layout changes.
  drawLinks() {
    const box = this.links.getBoundingClientRect();
    if (!this.match || !box.width) return;
    const middle = (card) => {
      const place = card.getBoundingClientRect();
      return place.top + place.height / 2 - box.top;
    };
    const path = (pair) => {
      const { r, f } = timesOf(this.match, pair);
      const [y1, y2] = [middle(this.cards.r.get(r)), middle(this.cards.f.get(f))];
      const line = `M0 ${y1}C${box.width / 2} ${y1} ${box.width / 2} ${y2} ${box.width} ${y2}`;
      const width = { style: { '--share': pair.credit }, 'stroke-width': 1.5 + 3 * pair.credit };
      const numbers = `M = ${fixed(pair.similarity)}, credit ${fixed(pair.credit)}`;
      const title = `reference step ${r} and failed step ${f}: ${numbers}`;
      return drawn('path', { d: line, 'data-r': r, 'data-f': f, ...width }, drawn('title', {}, title));
    };
    this.links.setAttribute('viewBox', `0 0 ${box.width} ${box.height}`);
    refill(this.links, creditedPairs(this.match).map(path));
  }

  choose(at, scroll) {
    const partners = at ? partnersOf(this.match, at) : [];
    for (const side of ['r', 'f']) {
      for (const [time, card] of this.cards[side]) {
        const chosen = at?.side === side && at.time === time;
        card.classList.toggle('chosen', chosen);
        card.classList.toggle('partner', Boolean(at) && at.side !== side && partners.includes(time));
        card.setAttribute('aria-selected', chosen);
      }
    }
    for (const path of this.links.children) {
      path.classList.toggle('chosen', Boolean(at) && path.dataset[at.side] === String(at.time));
    }
    if (scroll && at) this.cards[at.side].get(at.time).scrollIntoView({ block: 'nearest' });
  }
}

function creditedPairs(match) {
  return [...match.credited.values()].filter((pair) => pair.credit > 0);
}

function timesOf(match, { u, v }) {
  return { r: match.left[u].time, f: match.right[v].time };
}

// Times of the steps on the other side that share a credited pair with this one.
function partnersOf(match, at) {
  const other = at.side === 'r' ? 'f' : 'r';
  const pairs = creditedPairs(match).map((pair) => timesOf(match, pair));
  return pairs.filter((pair) => pair[at.side] === at.time).map((pair) => pair[other]);
}

function counted(steps) {
  return `${steps.length} ${steps.length === 1 ? 'step' : 'steps'}`;
}

function stepList(name) {
  return element('ol', { class: 'steps', role: 'listbox', 'aria-label': name });
}

function stepCard(step, side, click) {
  const credited = step.credit > 0;
  const share = { class: 'credit', style: { '--share': step.credit } };
  const head = [
    element('span', { class: 'time' }, String(step.time)),
    element('span', { class: 'action' }, step.action || '(no action)'),
    credited ? element('span', share, `credit ${fixed(step.credit)}`) : null,
    credited && !isMoved(step) ? element('span', { class: 'dead' }, 'no effect') : null,
    step.kept ? null : element('span', { class: 'filtered' }, 'filtered'),
  ];
  return element(
    'li',
    { class: ['step', step.kept ? '' : 'out', credited ? 'credited' : ''].join(' ').trim(), role: 'option', click },
    element('p', { class: 'head' }, head),
    element('p', { class: 'observation' }, step.observation || '(empty)'),
    side === 'f' ? element('p', { class: 'numbers' }, returnLine(step)) : null,
  );
}

function returnLine(step) {
  const change =
    step.credit > 0 ? `return ${fixed(step.before)} → ${fixed(step.after)}` : `return ${fixed(step.after)}`;
  return isMoved(step) ? `${change} · advantage changed by ${signed(step.advantage - step.unshaped)}` : change;
}
