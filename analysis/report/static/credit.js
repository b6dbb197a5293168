// A recorded group as objects, and sentences that explain what happened to a step.
// Record: scpo/diagnostics/sampled_groups.py. Positions: u in the reference (m of them), v in the failed sibling (l).

const COMPARED = {
  action_next_observation: 'action and resulting observation',
  observation_action: 'state and action',
  action: 'action',
};
const UNMOVED = 5e-6; // a change of an advantage below this is rounding

function readGroup(record, settings) {
  const columns = record.steps;
  const text = (k) => record.texts[k];
  const siblings = new Map(record.siblings.map((sibling) => [sibling.trajectory, sibling]));
  const steps = columns.step.map((time, k) => {
    const added = settings.alpha * columns.credit[k];
    return {
      time,
      added,
      trajectory: columns.trajectory[k],
      success: siblings.get(columns.trajectory[k]).success,
      action: text(columns.action[k]),
      observation: text(columns.observation[k]),
      state: text(columns.state[k]),
      valid: columns.valid[k],
      kept: columns.kept[k],
      credit: columns.credit[k],
      before: columns.step_return[k] + columns.bonus[k] - added,
      after: columns.step_return[k] + columns.bonus[k],
      penalty: added - columns.bonus[k],
      anchor: columns.anchor_group[k],
      unshaped: columns.unshaped_advantage[k],
      advantage: columns.advantage[k],
    };
  });
  const anchors = groupedBy(steps, (step) => step.anchor);
  for (const step of steps) step.peers = anchors.get(step.anchor);
  const of = (trajectory) => steps.filter((step) => step.trajectory === trajectory);
  const reference = of(record.reference.trajectory);
  return {
    record,
    settings,
    siblings,
    reference,
    matches: record.matches.map((match) => readMatch(match, of(match.trajectory), reference, record.reference.steps)),
  };
}

// `left[u]` and `right[v]` are the kept steps; `steps` are all steps of the failed sibling, including filtered ones.
function readMatch(match, steps, reference, referenceTimes) {
  const right = match.steps.map((time) => steps[time]);
  const left = referenceTimes.map((time) => reference[time]);
  const position = new Map(right.map((step, v) => [step, v]));
  const credited = new Map(match.credited.map(([u, v, similarity, credit]) => [v, { u, v, similarity, credit }]));
  const turn = new Map(match.walk.map(([v], k) => [v, k]));
  return { ...match, steps, left, right, position, turn, credited };
}

function creditedSteps(match) {
  return match.steps.filter((step) => step.credit > 0);
}

function isMoved(step) {
  return Math.abs(step.advantage - step.unshaped) > UNMOVED;
}

// Why a failed step did or did not get credit.
function reason(group, match, step) {
  const filter = 'Left out by the step filter:';
  if (!step.valid) return `${filter} the action was not valid.`;
  if (!step.kept) return `${filter} nothing came of the action.`;
  if (!match.left.length) return 'No credit: the step filter left nothing of the reference.';
  const v = match.position.get(step);
  const { theta, allocation } = group.settings;
  const moved = allocation === 'matched' ? '' : ` The control ${allocation} then gave the credit to other steps.`;
  const pair = match.credited.get(v);
  if (!pair) return whyNone(group, match, v) + moved;
  const similar = `M = ${fixed(pair.similarity)} ≥ θ = ${theta}, which earns credit ${fixed(pair.credit)}`;
  return `Matched reference step ${match.left[pair.u].time}: ${similar}.${moved}`;
}

function whyNone(group, match, v) {
  const k = match.turn.get(v);
  if (k === undefined) return 'Not processed: the walk had ended at the last reference step.';
  const { theta, matcher } = group.settings;
  const turn = `Processed as number ${k + 1} of ${match.right.length}.`;
  if (matcher !== 'kmp') return `No credit: no reference step beyond the frontier reaches θ = ${theta}. ${turn}`;
  const similarity = (u) => `M = ${fixed(match.similarity[u][v])}`;
  const now = match.walk[k][1];
  if (now >= 0) {
    const again = `it matched reference step ${match.left[now].time} (${similarity(now)}), credited before`;
    return `No credit: ${again}. ${turn}`;
  }
  const was = k ? match.walk[k - 1][1] : -1;
  const next = Math.min(was + 1, match.left.length - 1);
  const waited = `the walk waited for reference step ${match.left[next].time} (${similarity(next)} < θ = ${theta})`;
  return `No credit: ${waited}${was >= 0 ? ', and falling back found no match either' : ''}. ${turn}`;
}

// Whether the credit reached this step's advantage.
function effect(group, step) {
  const peers = step.peers.length - 1;
  const shared = `the anchor state is shared with ${peers} other ${peers === 1 ? 'step' : 'steps'} of the group`;
  const change = signed(step.advantage - step.unshaped);
  if (isMoved(step) && step.credit > 0) {
    return { works: true, text: `Effect: the advantage moved by ${change}${peers ? `; ${shared}` : ''}.` };
  }
  if (isMoved(step)) {
    const why = 'the credit of steps that it is compared with moved its advantage by';
    return { works: true, text: `Not credited itself, but ${why} ${change}.` };
  }
  return {
    works: false,
    text: step.credit > 0 ? whyNoEffect(group, peers, shared) : 'Its advantage is what it would be without SCPO.',
  };
}

function whyNoEffect(group, peers, shared) {
  if (!peers) {
    return 'No effect: no other step of the group starts from this state, so it is compared with none.';
  }
  if (peers === 1 && group.settings.normalisation === 'mean_std_norm') {
    return 'No effect: of two steps from one state, divided by their deviation, only the order counts.';
  }
  return `No effect, although ${shared}: normalised, they stand where they stood.`;
}

// One line about a failed sibling, for the selector.
function siblingLine(group, match) {
  const { steps, episode_return: outcome } = group.siblings.get(match.trajectory);
  return `${match.trajectory}: ${steps} steps, ${creditedSteps(match).length} credited, return ${number(outcome)}`;
}

function summaryLines(group, match, sampled) {
  const { record, reference, settings } = group;
  const successes = record.siblings.filter((sibling) => sibling.success).length;
  const credited = creditedSteps(match);
  const added = credited.reduce((sum, step) => sum + step.added, 0);
  const walk = settings.monotonic ? 'monotonic' : 'without monotonicity';
  return [
    `Task ${record.task}: ${successes} of ${record.siblings.length} siblings succeeded. The reference is sibling ` +
      `${record.reference.trajectory} (${settings.reference} success, ${reference.length} steps).`,
    `Failed sibling ${match.trajectory}: ${credited.length} of its ${match.steps.length} steps got credit, ` +
      `which adds ${fixed(added)} to its step returns (α = ${settings.alpha}); ` +
      `it moved the advantage of ${credited.filter(isMoved).length} of them.`,
    `${sampled.groups.length} of ${sampled.active_groups} active groups of this training step were sampled; ` +
      `${sampled.groups_in_batch} groups were rolled out. Steps are compared by ${COMPARED[settings.step_text]}, ` +
      `scorer=${settings.scorer}${settings.exact && ` (${settings.exact}: credited steps equal the reference's by construction)`}; ` +
      `${settings.matcher === 'kmp' ? 'the walk of Algorithm 2' : 'the forward matcher'}, ${walk}, θ = ${settings.theta}, λ = ${settings.soft_base}, ` +
      `processed in ${settings.order} order, on ${settings.host}.`,
  ];
}
