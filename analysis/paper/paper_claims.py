"""List of the paper's claims: text, place, printed number, and the quantity that tests each."""

from collections.abc import Iterator

from analysis.paper.claims import (
    BOTH,
    LARGE,
    SMALL,
    Claim,
    best_minus_worst,
    denser,
    exact_share,
    gap,
    late_rise,
    later_credit,
    mean_of,
    narrower,
    of_inexact_scorer,
    of_row,
    peak_of,
    printed_ablation,
    printed_cost,
    printed_gap,
    printed_level,
    rise,
    scoring_share,
    success,
)
from analysis.paper.published import credit
from scpo.records.memory import GPU

MAIN = "main_table"
CHRONOLOGICAL = "chronological"
SHORTEST = "shortest_reference"
REPEATED = "no_monotonicity"
DENSE = "scpo_dense"

# Experiment that tests claims about WebShop at the study's scale.
SHOP = "webshop_study"

HARD = ("Look", "Cool", "Pick2")
EASY = ("Pick", "Clean", "Heat")

# Our reading of the paper's "within a few points".
FEW_POINTS = 5.0

# Our reading of "hangs little on": points between the best and the worst of several values, each of
# which is a noisy mean.
LITTLE = 10.0

# Span of the paper's means of credit, and its first step.
SPAN = "mean over steps 20-150"
FROM_STEP = 20


def claims() -> tuple[Claim, ...]:
    """All claims, in the paper's order."""
    return (
        *_main(SMALL),
        *_families(),
        *_main(LARGE),
        *_sizes_and_knobs(),
        *_dynamics(),
        *_ablation(),
        *_mechanism(),
        *_cost(),
    )


def _main(size: str) -> Iterator[Claim]:
    """Yield the main table's claims about one model."""
    for env, key, column in (("ALFWorld", "alfworld", "All"), ("WebShop", "webshop", "Succ")):
        level, text = printed_level(size, env, column)
        other = printed_gap(size, env, column)
        where = f"{env}, {size}"
        yield Claim(
            f"level_{key}_{size}",
            f"SCPO's success, {where}",
            "main table",
            text,
            MAIN,
            of_row("scpo", success()),
            level,
            null=None,
            size=size,
            env=key,
        )
        yield Claim(
            f"over_gigpo_{key}_{size}",
            f"SCPO beats GiGPO, which it wraps, {where}",
            "main table, section 4.2",
            f"+{other:.1f}",
            MAIN,
            gap("scpo", "gigpo", success()),
            other,
            size=size,
            env=key,
            at_study=SHOP if key == "webshop" else None,
        )
        # The paper's text compares SCPO with HGPO only for the small model.
        rival = printed_gap(size, env, column, "HGPO")
        if size == SMALL:
            yield Claim(
                f"over_hgpo_{key}",
                f"SCPO edges past HGPO, {where}",
                "section 4.2",
                f"+{rival:.2f}",
                MAIN,
                gap("scpo", "hgpo", success()),
                rival,
                size=size,
                env=key,
            )


def _families() -> Iterator[Claim]:
    """Yield claims about task families: the gains are on the harder ones."""
    for column in HARD:
        printed = printed_gap(SMALL, "ALFWorld", column)
        yield Claim(
            f"over_gigpo_{column.lower()}",
            f"The gain over GiGPO on {column}, 1.5B",
            "section 4.2",
            f"+{printed:.1f}",
            MAIN,
            gap("scpo", "gigpo", success(column)),
            printed,
        )

    for column in EASY:
        printed = printed_gap(SMALL, "ALFWorld", column)
        yield Claim(
            f"beside_gigpo_{column.lower()}",
            f"{column}: SCPO is at most a few points (ours: {FEW_POINTS:g}) behind",
            "section 4.2",
            f"{printed:+.1f}",
            MAIN,
            gap("scpo", "gigpo", success(column)),
            printed,
            null=-FEW_POINTS,
        )

    for column in ("Look", "Pick2"):
        level, text = printed_level(LARGE, "ALFWorld", column)
        yield Claim(
            f"level_{column.lower()}_{LARGE}",
            f"SCPO's success on {column}, 7B",
            "section 4.2",
            text,
            MAIN,
            of_row("scpo", success(column)),
            level,
            null=None,
            size=LARGE,
        )


def _sizes_and_knobs() -> Iterator[Claim]:
    """Yield claims about the size of the model and about hyper-parameters with little effect."""
    # Rounded, because a difference of floats may be 0.30000000000000004.
    small = printed_gap(SMALL, "ALFWorld", "All")
    large = printed_gap(LARGE, "ALFWorld", "All")
    printed = round(small - large, 2)
    yield Claim(
        "narrower",
        "The gain over GiGPO on ALFWorld is larger at 1.5B than at 7B",
        "section 1, section 4.2",
        f"+{printed:.1f}",
        MAIN,
        narrower,
        printed,
        size=BOTH,
        everywhere=False,
    )
    for name, knob, sign in (("theta", "theta", "θ"), ("lambda", "soft_base", "λ")):
        yield Claim(
            f"robust_{name}",
            f"Success hangs little on {sign}: mean of the best value minus that of the worst "
            f"(ours: under {LITTLE:g} points)",
            "appendix, sensitivity",
            "a plot",
            f"sweep_{name}",
            best_minus_worst(knob),
            None,
            null=LITTLE,
            sign=-1,
        )


def _dynamics() -> Iterator[Claim]:
    """Yield claims about learning curves."""
    yield Claim(
        "rises",
        "Validation success of SCPO rises over training: last validation − first (points)",
        "learning dynamics",
        "a plot",
        MAIN,
        of_row("scpo", rise),
        None,
    )
    yield Claim(
        "plateau",
        "It reaches a plateau: gain in the last quarter of training, minus a quarter of the whole "
        "gain (points)",
        "learning dynamics",
        "a plot",
        MAIN,
        of_row("scpo", late_rise),
        None,
        sign=-1,
        curve_of="scpo",
    )


def _ablation() -> Iterator[Claim]:
    """Yield claims about the three ablated design choices."""
    for row, experiment, text in (
        (CHRONOLOGICAL, "ablation_order", "Reordered allocation beats chronological order"),
        (REPEATED, "ablation_monotonicity", "Monotonic crediting beats repeated credit"),
        (SHORTEST, "ablation_reference", "The longest reference beats the shortest"),
    ):
        printed = printed_ablation(row)
        yield Claim(
            f"over_{row}",
            text,
            "ablation table",
            f"+{printed:.1f}",
            experiment,
            gap("scpo", row, success()),
            printed,
        )

    for column in ("Look", "Pick2"):
        printed = printed_ablation(SHORTEST, column)
        yield Claim(
            f"over_{SHORTEST}_{column.lower()}",
            f"The shortest reference loses most on hard families: {column}",
            "section 4.3.3",
            f"+{printed:.1f}",
            "ablation_reference",
            gap("scpo", SHORTEST, success(column)),
            printed,
        )

    yield Claim(
        "inflation",
        "Repeated credit inflates the auxiliary reward: mean over the logged training steps",
        "section 4.3.2",
        "no number",
        "ablation_monotonicity",
        gap(REPEATED, "scpo", mean_of("credit/aux_mean")),
        None,
        factor=1,
        digits=4,
    )


def _mechanism() -> Iterator[Claim]:
    """Yield claims about the amount of credit and the steps that get it."""
    order = (
        ("credited steps per failed trajectory", "credit/steps", 1),
        ("mean auxiliary reward", "credit/aux_mean", 3),
    )
    for quantity, metric, digits in order:
        ours, theirs = (credit()[name, quantity, SPAN] for name in ("scpo", CHRONOLOGICAL))
        yield Claim(
            f"reordered_{metric.removeprefix('credit/')}",
            f"Reordered allocation credits more than chronological order: {quantity}, mean over "
            f"the logged training steps (at the paper's scale from step {FROM_STEP} on)",
            "appendix, step rewards",
            f"{ours:g} against {theirs:g}",
            "ablation_order",
            gap("scpo", CHRONOLOGICAL, mean_of(metric, FROM_STEP)),
            round(ours - theirs, 4),
            factor=1,
            digits=digits + 1,
        )

    yield Claim(
        "grows",
        "Credited steps grow over training: per failed trajectory, mean over the second half of "
        "the logged steps − the first",
        "appendix, step rewards",
        "a plot",
        "ablation_order",
        of_row("scpo", later_credit),
        None,
        factor=1,
        digits=2,
    )
    exact = credit()["credited", "exact matches", "share"]
    yield Claim(
        "exact",
        "Most credited steps (more than 50 %) of the sampled early batches have the text of a step "
        "of a successful sibling; study scale: SCPO with MiniLM",
        "appendix, semantic neighbourhood",
        f"{exact:g} %",
        MAIN,
        of_inexact_scorer(exact_share),
        exact,
        null=50.0,
        of_samples=True,
    )
    yield Claim(
        "denser",
        "Heatmaps of failed steps against the reference grow denser: mean similarity, last probe "
        "− first",
        "appendix, case study",
        "a plot",
        MAIN,
        of_row("scpo", denser),
        None,
        factor=1,
        digits=3,
        of_samples=True,
    )


def _cost() -> Iterator[Claim]:
    """Yield the claims about cost.

    They can only be tested on the paper's machine, with its cross-encoder and its procedure, which
    scores all pairs.
    """
    added = printed_cost("added per training step", "mean")
    yield Claim(
        "added",
        "Seconds that the shaper adds to a training step: mean over all steps",
        "section 4.4",
        f"{added:g} s",
        "cost",
        gap(DENSE, "gigpo", mean_of("timing_s/step")),
        added,
        factor=1,
        everywhere=False,
    )
    # The cross-encoder runs in two stages: on pairs of steps of two rollouts, and on pairs within
    # the failed one.
    share = printed_cost("scoring", "share") + printed_cost("self_similarity", "share")
    yield Claim(
        "scoring_share",
        "Share of the cross-encoder in the shaper's seconds: of the medians over all steps",
        "appendix, shaper timing",
        f"{share:.2f} %",
        "cost",
        of_row(DENSE, scoring_share),
        round(share, 2),
        null=50.0,
        everywhere=False,
    )
    # The paper prints both peaks, and their difference only in words.
    ours = printed_cost("peak GPU memory", "peak")
    theirs = printed_cost("peak GPU memory", "peak", "GiGPO")
    memory = ours - theirs
    yield Claim(
        "memory",
        "Peak GPU memory over training that it adds",
        "section 4.4",
        f"{memory:.1f} GB",
        "cost",
        gap(DENSE, "gigpo", peak_of(GPU)),
        round(memory, 1),
        factor=1,
        everywhere=False,
    )
