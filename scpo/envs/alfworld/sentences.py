"""Paraphrases of ALFWorld's sentences: data that ``wordings.py`` makes texts from.

The first form of each is the game's own, the others are its paraphrases. Names of things
are in braces: ``{r}`` a receptacle, ``{o}`` an object, ``{list}`` listed things, ``{adj}`` what
was done to a thing.
"""

from __future__ import annotations

_R = r"[a-z]+ \d+"
_LIST = r"[^.:;]+?"

SENTENCES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        rf"You arrive at (?P<r>{_R})\.",
        (
            "You arrive at {r}.",
            "You walk over to {r}.",
            "Now you are standing at {r}.",
            "You have reached {r}.",
            "{r} is in front of you now.",
            "After a few steps you come to {r}.",
            "Your way ends at {r}.",
            "You make your way to {r}.",
            "Here you are, next to {r}.",
        ),
    ),
    (
        rf"The (?P<r>{_R}) is closed\.",
        (
            "The {r} is closed.",
            "{r} is shut.",
            "{r} has not been opened.",
            "You find {r} closed.",
            "It is shut, so what {r} holds stays hidden.",
            "You cannot look inside because {r} is closed.",
            "{r}: closed.",
            "Someone left {r} shut.",
            "Nothing inside can be seen, as {r} is closed.",
        ),
    ),
    (
        rf"The (?P<r>{_R}) is open\. In it, you see (?P<list>{_LIST})\.",
        (
            "The {r} is open. In it, you see {list}.",
            "{r} stands open; inside you find {list}.",
            "Inside the open {r} there is {list}.",
            "Looking into {r}, which is open, you notice {list}.",
            "{r} is not closed, and it contains {list}.",
            "You can see into {r}: {list}.",
            "{r} (open) holds {list}.",
            "There is {list} in {r}, which is open.",
            "With {r} open, {list} can be seen inside.",
        ),
    ),
    (
        rf"On the (?P<r>{_R}), you see (?P<list>{_LIST})\.",
        (
            "On the {r}, you see {list}.",
            "{r} has {list} on it.",
            "There is {list} on {r}.",
            "You notice {list} lying on {r}.",
            "Looking at {r}, you find {list}.",
            "Placed on {r}: {list}.",
            "{r} bears {list}.",
            "What you see on {r} is {list}.",
            "On top of {r} one can see {list}.",
        ),
    ),
    (
        rf"You open the (?P<r>{_R})\.",
        (
            "You open the {r}.",
            "You pull {r} open.",
            "{r} has been opened.",
            "You have just opened {r}.",
            "With one hand you open up {r}.",
            "You opened {r}.",
            "You get {r} open.",
            "You swing {r} open.",
            "Now {r} is not closed any more.",
        ),
    ),
    (
        rf"You close the (?P<r>{_R})\.",
        (
            "You close the {r}.",
            "You shut {r}.",
            "{r} has been closed again.",
            "You have just closed {r}.",
            "With one hand you push {r} shut.",
            "You closed {r}.",
            "You get {r} shut.",
            "You swing {r} shut.",
            "Now {r} is not open any more.",
        ),
    ),
    (
        rf"You pick up the (?P<o>{_R}) from the (?P<r>{_R})\.",
        (
            "You pick up the {o} from the {r}.",
            "You take {o} from {r}.",
            "From {r} you grab {o}.",
            "{o} is in your hand now; it was at {r}.",
            "You lift {o} from {r}.",
            "You now hold {o}, which you got from {r}.",
            "You get {o} from {r}.",
            "Reaching to {r}, you pick {o} up.",
            "You collect {o}, found at {r}.",
        ),
    ),
    (
        rf"You move the (?P<o>{_R}) to the (?P<r>{_R})\.",
        (
            "You move the {o} to the {r}.",
            "You put {o} down at {r}.",
            "At {r} you leave {o}.",
            "{o} now lies at {r}.",
            "You place {o} at {r}.",
            "You set {o} down, and {r} holds it now.",
            "You drop {o} off at {r}.",
            "Letting go of {o}, you leave it at {r}.",
            "You deposit {o} at {r}.",
        ),
    ),
    (
        rf"You heat the (?P<o>{_R}) using the (?P<r>{_R})\.",
        (
            "You heat the {o} using the {r}.",
            "You warm up {o} with {r}.",
            "{o} gets hot in {r}.",
            "With {r} you make {o} hot.",
            "You use {r} to heat {o}.",
            "{o} was heated by means of {r}.",
            "You let {r} warm {o}.",
            "Thanks to {r}, {o} is hot now.",
            "You heated {o} in {r}.",
        ),
    ),
    (
        rf"You cool the (?P<o>{_R}) using the (?P<r>{_R})\.",
        (
            "You cool the {o} using the {r}.",
            "You chill {o} with {r}.",
            "{o} gets cold in {r}.",
            "With {r} you make {o} cold.",
            "You use {r} to cool {o}.",
            "{o} was chilled by means of {r}.",
            "You let {r} chill {o}.",
            "Thanks to {r}, {o} is cold now.",
            "You cooled {o} down in {r}.",
        ),
    ),
    (
        rf"You clean the (?P<o>{_R}) using the (?P<r>{_R})\.",
        (
            "You clean the {o} using the {r}.",
            "You wash {o} with {r}.",
            "{o} gets clean in {r}.",
            "With {r} you make {o} clean.",
            "You use {r} to rinse {o}.",
            "{o} was washed by means of {r}.",
            "You let {r} rinse {o}.",
            "Thanks to {r}, {o} is clean now.",
            "You cleaned {o} in {r}.",
        ),
    ),
    (
        rf"You turn on the (?P<o>{_R})\.",
        (
            "You turn on the {o}.",
            "You switch {o} on.",
            "{o} is on now.",
            "You make {o} shine.",
            "You have turned {o} on.",
            "{o} gives light now.",
            "You flip the switch, and {o} lights up.",
            "Light comes from {o}, which you switched on.",
            "You put {o} on.",
        ),
    ),
    (
        rf"You turn off the (?P<o>{_R})\.",
        (
            "You turn off the {o}.",
            "You switch {o} off.",
            "{o} is off now.",
            "You make {o} go dark.",
            "You have turned {o} off.",
            "{o} gives no light any more.",
            "You flip the switch, and {o} goes out.",
            "No light comes from {o}, which you switched off.",
            "You put {o} out.",
        ),
    ),
    (
        rf"You don't see any switch on the (?P<o>{_R})\.",
        (
            "You don't see any switch on the {o}.",
            "{o} has no switch.",
            "There is no switch on {o}.",
            "{o} cannot be switched.",
            "You look for a switch on {o} and find none.",
            "No switch can be found on {o}.",
            "{o} comes without a switch.",
            "On {o} you see no switch.",
            "{o} lacks a switch.",
        ),
    ),
    (
        rf"You are carrying: (?P<list>{_LIST})\.",
        (
            "You are carrying: {list}.",
            "You carry {list}.",
            "In your hand there is {list}.",
            "You hold {list}.",
            "What you carry is {list}.",
            "Your hand holds {list}.",
            "You have {list} with you.",
            "{list} is in your hand.",
            "You are holding {list}.",
        ),
    ),
    (
        r"You are not carrying anything\.",
        (
            "You are not carrying anything.",
            "You carry nothing.",
            "Your hands are empty.",
            "There is nothing in your hand.",
            "You hold nothing.",
            "You have nothing with you.",
            "Nothing is in your hand.",
            "You do not hold anything.",
            "Your hands are free.",
        ),
    ),
    (
        rf"This is a normal (?P<o>{_R})\. In it, you see (?P<list>{_LIST})\.",
        (
            "This is a normal {o}. In it, you see {list}.",
            "{o} is an ordinary one, and in it there is {list}.",
            "Inside {o}, nothing special itself, you find {list}.",
            "An ordinary {o}; it contains {list}.",
            "{o} looks normal. It holds {list}.",
            "You see {list} in {o}, which looks normal.",
            "There is {list} in the plain {o}.",
            "Looking into {o}, you notice {list}; it is an ordinary one.",
            "{o} is normal, with {list} inside.",
        ),
    ),
    (
        rf"This is a (?P<adj>[a-z ]+?) (?P<o>{_R})\.",
        (
            "This is a {adj} {o}.",
            "{o} is {adj}.",
            "You see that {o} is {adj}.",
            "What you look at is {o}, and it is {adj}.",
            "It is {adj}, this {o}.",
            "{o} turns out to be {adj}.",
            "Here is {o}, {adj}.",
            "You notice a {adj} {o}.",
            "{o} appears {adj}.",
        ),
    ),
    (
        rf"This (?P<o>{_R}) is (?P<adj>on|off)\.",
        (
            "This {o} is {adj}.",
            "{o} is switched {adj}.",
            "You see that {o} is {adj}.",
            "The switch of {o} is {adj}.",
            "It is {adj}, this {o}.",
            "{o} is turned {adj}.",
            "{o}: {adj}.",
            "You find {o} switched {adj}.",
            "{o} has been put {adj}.",
        ),
    ),
    (
        rf"There's nothing special about (?P<o>{_R})\.",
        (
            "There's nothing special about {o}.",
            "{o} looks ordinary.",
            "You see nothing remarkable about {o}.",
            "{o} is nothing special.",
            "It is just {o}.",
            "Nothing about {o} is worth a note.",
            "{o} is as one would expect.",
            "Looking at {o}, you notice nothing special.",
            "An ordinary {o}.",
        ),
    ),
    (
        rf"You are facing the (?P<facing>{_LIST})\. Next to it, you see (?P<list>{_LIST})\.",
        (
            "You are facing the {facing}. Next to it, you see {list}.",
            "You face {facing}; beside it there is {list}.",
            "In front of you: {facing}. Next to that you find {list}.",
            "You look at {facing}, with {list} beside it.",
            "{facing} is before you, and beside it {list}.",
            "Before you stands {facing}. Near it you notice {list}.",
            "You stand at {facing}, and there is {list} next to it.",
            "Here is {facing}; close to it, {list}.",
            "Looking around at {facing}, you see {list}.",
        ),
    ),
    (
        r"You are in the middle of a room\. Looking quickly around you, "
        rf"you see (?P<list>{_LIST})\.",
        (
            "You are in the middle of a room. Looking quickly around you, you see {list}.",
            "You stand in a room, in its middle. Around you there is {list}.",
            "From the centre of the room you notice {list}.",
            "In the room, you find yourself surrounded by {list}.",
            "The room around you has {list}.",
            "A glance around the room shows {list}.",
            "This room holds {list}, and you stand in its midst.",
            "Being in the middle of a room, you take a look: {list}.",
            "There is {list} in the room that you are in the middle of.",
        ),
    ),
    (
        r"Nothing happens\.",
        (
            "Nothing happens.",
            "There is no effect.",
            "That does nothing.",
            "It did not work.",
            "Nothing changes.",
            "No reaction follows.",
            "All stays as it was.",
            "Your attempt has no effect.",
            "That leads to nothing.",
        ),
    ),
    (
        r"Your task is to: (?P<task>.+)",
        (
            "Your task is to: {task}",
            "What you have to do: {task}",
            "You are asked to: {task}",
            "The job: {task}",
            "Please do this: {task}",
            "You should: {task}",
            "Goal: {task}",
            "Your assignment is to: {task}",
            "This is your task: {task}",
        ),
    ),
    (
        r"-= Welcome to TextWorld, ALFRED! =-",
        (
            "-= Welcome to TextWorld, ALFRED! =-",
            "Welcome to ALFRED.",
            "This is ALFRED, a text world.",
            "Hello.",
            "A new episode begins.",
            "The game starts.",
            "Let us begin.",
            "TextWorld greets you.",
            "ALFRED starts.",
        ),
    ),
)
"""For each sentence of the game, a pattern that matches it and its forms."""

AT: tuple[str, ...] = (
    "You are at {r}.",
    "You stand at {r}.",
    "Your place is {r}.",
    "You find yourself at {r}.",
    "{r} is where you are.",
    "Where you are: {r}.",
    "Your position is next to {r}.",
    "You are located at {r}.",
    "You stay beside {r}.",
)
"""Where the agent is."""

NOWHERE: tuple[str, ...] = (
    "You have not gone anywhere yet.",
    "You went nowhere so far.",
    "You have not moved from the start.",
    "So far you stayed where you were.",
    "You are still where you began.",
    "Up to now you have gone nowhere.",
    "You have yet to go anywhere.",
    "Your place is still that of the start.",
    "No place was visited so far.",
)
"""The agent has gone nowhere yet."""

HOLDING: tuple[str, ...] = (
    "You are holding {o}.",
    "You carry {o}.",
    "In your hand there is {o}.",
    "You hold {o}.",
    "What you carry is {o}.",
    "Your hand holds {o}.",
    "You have {o} with you.",
    "{o} is in your hand.",
    "You keep {o} in hand.",
)
"""What is in hand."""

EMPTY: tuple[str, ...] = (
    "You are not carrying anything.",
    "You carry nothing.",
    "Your hands are empty.",
    "There is nothing in your hand.",
    "You hold nothing.",
    "You have nothing with you.",
    "Nothing is in your hand.",
    "You do not hold anything.",
    "Your hands are free.",
)
"""Nothing is in hand."""

MOVED: tuple[str, ...] = (
    "{o} was brought from {r} to {p}.",
    "You took {o} from {r} to {p}.",
    "{o}, at first at {r}, is at {p} now.",
    "You carried {o} away from {r} and left it at {p}.",
    "{p} has {o} now, which was at {r} before.",
    "From {r} you brought {o} to {p}.",
    "You moved {o} to {p}; it was at {r}.",
    "{o} went from {r} to {p}.",
    "{p} is where you put {o}, which you had found at {r}.",
)
"""A thing that was taken from one place and put into another."""

TREATMENTS: dict[str, tuple[str, ...]] = {
    "hot": ("hot", "heated", "warmed up", "warm"),
    "cool": ("cool", "cold", "chilled"),
    "cold": ("cold", "cool", "chilled"),
    "clean": ("clean", "washed", "cleaned", "rinsed"),
}
"""Words for what was done to a thing."""

ALIASES: dict[str, tuple[str, ...]] = {
    "armchair": ("easy chair", "lounge chair"),
    "bathtubbasin": ("bathtub", "tub"),
    "bed": ("bunk", "bedstead"),
    "butterknife": ("table knife", "spreader"),
    "cabinet": ("cupboard", "closet"),
    "cellphone": ("mobile", "phone"),
    "coffeemachine": ("coffee maker", "espresso machine"),
    "coffeetable": ("low table", "living room table"),
    "countertop": ("worktop", "counter"),
    "creditcard": ("bank card", "payment card"),
    "desk": ("writing table", "bureau"),
    "desklamp": ("table lamp", "reading lamp"),
    "diningtable": ("dinner table", "eating table"),
    "drawer": ("pull-out", "slider"),
    "dresser": ("chest", "wardrobe"),
    "fridge": ("refrigerator", "icebox"),
    "garbagecan": ("bin", "waste basket"),
    "keychain": ("keyring", "bunch of keys"),
    "mug": ("beaker", "tumbler"),
    "pencil": ("crayon", "drawing pen"),
    "safe": ("strongbox", "vault"),
    "saltshaker": ("salt cellar", "salt pot"),
    "shelf": ("rack", "ledge"),
    "sidetable": ("bedside table", "end table"),
    "sinkbasin": ("sink", "washbasin"),
    "sofa": ("couch", "settee"),
    "stoveburner": ("hotplate", "burner"),
    "toiletpaper": ("toilet roll", "bathroom tissue"),
    "tomato": ("love apple", "red fruit"),
    "watch": ("timepiece", "wristwatch"),
}
"""Synonyms for the kind of a thing; its number stays."""
