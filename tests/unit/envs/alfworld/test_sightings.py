from scpo.envs.alfworld.transcript import Sighting, Transcript, reported_sighting


def after(*steps):
    transcript = Transcript("", ())
    for action, answer in steps:
        transcript.record(action, answer, (), executed=True)
    return transcript.sightings


def test_answers_report_receptacles_with_their_contents():
    assert reported_sighting("You arrive at desk 2. On the desk 2, you see a mug 1, and a pen 2.") == (
        "desk 2", ("mug 1", "pen 2"),
    )  # fmt: skip
    assert reported_sighting("On the shelf 1, you see nothing.") == ("shelf 1", ())
    assert reported_sighting("You open the safe 1. The safe 1 is open. In it, you see a cd 3.") == ("safe 1", ("cd 3",))
    assert reported_sighting("You arrive at fridge 1. The fridge 1 is closed.") == ("fridge 1", None)


def test_other_answers_report_none():
    look = "You are facing the desk 2. Next to it, you see nothing."
    nothing = "There's nothing special about mug 1."
    for answer in ("You pick up the mug 1 from the desk 2.", look, nothing, "You are carrying: a mug 1."):
        assert reported_sighting(answer) is None


GO = ("go to desk 2", "You arrive at desk 2. On the desk 2, you see a mug 1, and a pen 2.")
TAKE = ("take mug 1 from desk 2", "You pick up the mug 1 from the desk 2.")


def test_what_was_taken_lies_there_no_more_and_the_look_is_as_old_as_before():
    assert after(GO, TAKE) == {"desk 2": Sighting(0, ("pen 2",))}


def test_what_was_put_down_lies_there_now():
    put = ("move mug 1 to shelf 3", "You move the mug 1 to the shelf 3.")
    assert after(GO, TAKE, put)["shelf 3"] == Sighting(2, ("mug 1",))
    assert after(GO, TAKE, ("move mug 1 to desk 2", "You move the mug 1 to the desk 2."))["desk 2"] == Sighting(
        2, ("pen 2", "mug 1")
    )


def test_a_closed_receptacle_keeps_what_was_seen_in_it():
    opened = ("open safe 1", "You open the safe 1. The safe 1 is open. In it, you see a cd 3.")
    shut = ("close safe 1", "You close the safe 1.")
    assert after(("go to safe 1", "You arrive at safe 1. The safe 1 is closed."))["safe 1"] == Sighting(0, None)
    assert after(opened, shut)["safe 1"] == Sighting(1, ("cd 3",))
    assert after(shut)["safe 1"] == Sighting(0, None)


def test_receptacles_stay_in_the_order_of_their_first_sighting():
    there = ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing.")
    assert list(after(GO, there, GO)) == ["desk 2", "shelf 1"]
