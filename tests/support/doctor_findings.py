"""What the doctor found, for its tests."""

from scpo.findings import Level


def only(findings):
    """The one line that is not ok."""
    wrong = [one for one in findings if one.level is not Level.OK]
    assert len(wrong) == 1, wrong
    assert wrong[0].fix
    return wrong[0]


def assert_finds(findings, level, text, fix=""):
    one = only(list(findings))
    assert one.level == level
    assert text in one.text
    assert fix in one.fix
