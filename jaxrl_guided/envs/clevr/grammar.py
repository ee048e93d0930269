"""Sentence patterns of the four CLEVR-Robot levels: tables of text, no logic.

Slots: `{s}` source colour, `{d}` destination colour, `{x}` direction, `{o}` the opposite direction,
`{b}` the one colour of an Easy sentence, `{all}` a conjunction of clauses. Every direction table
has the compass order behind (+y), left (−x), front (−y), right (+x). The table is seen from its
front, so that on a map of it north is behind, and twelve on a clock face too.

A later change of wording voids every result that was made with it.
"""

from typing import NamedTuple

COLOURS = ("red", "blue", "green", "purple", "cyan")

REAL_DIRECTIONS = (
    ("behind", "to the rear of", "on the rear side of"),
    ("to the left of", "on the left of", "on the left side of"),
    ("in front of", "to the front of", "on the front side of"),
    ("to the right of", "on the right of", "on the right side of"),
)

REAL_FRAMES = (
    "Push the {s} ball until it is {x} the {d} ball.",
    "Put the {s} ball {x} the {d} ball.",
    "Can you place the {s} ball {x} the {d} ball?",
    "Move the {s} ball so that it lies {x} the {d} ball.",
    "The {s} ball must end up {x} the {d} ball.",
    "Roll the {s} ball until it stops {x} the {d} ball.",
    "I want the {s} ball to be {x} the {d} ball.",
    "Your task is to get the {s} ball {x} the {d} ball.",
    "Shift the {s} ball to a spot {x} the {d} ball.",
    "Make sure that the {s} ball is {x} the {d} ball.",
    "Drive the {s} ball to a position {x} the {d} ball.",
    "We need the {s} ball {x} the {d} ball.",
    "Slide the {s} ball over the table to a place {x} the {d} ball.",
    "Please set the {s} ball {x} the {d} ball.",
    "Find the {d} ball and bring the {s} ball to a point {x} it.",
    "The point {x} the {d} ball is where the {s} ball should go.",
    "Take the {d} ball as it is and lay the {s} ball {x} it.",
    "Keep pushing the {s} ball until it stands {x} the {d} ball.",
)

# Kept for choosing: three frames, and four goals together with their twins (the same relation said
# from the other ball), two goals of each direction.
HELD_OUT_FRAMES = (4, 9, 14)
HELD_OUT_GOALS = (
    (0, 1, 0), (1, 0, 2), (2, 4, 0), (4, 2, 2), (3, 0, 1), (0, 3, 3), (1, 4, 1), (4, 1, 3),
)  # fmt: skip


class Style(NamedTuple):
    """One Rephrase style: a frame and its words for the four directions."""

    frame: str
    directions: tuple[str, str, str, str]


REPHRASE_STYLES = (
    # A preference.
    Style(
        "I would much rather see the {s} sphere {x} the {d} sphere.",
        ("beyond", "leftward of", "nearer to me than", "rightward of"),
    ),
    # The present state is the opposite one and has to be undone.
    Style(
        "It annoys me how the {s} orb sits {o} the {d} orb; swap these two around.",
        ("backward of", "leftward of", "forward of", "rightward of"),
    ),
    # An adverb of motion.
    Style(
        "Nudge the {s} marble {x}, just past the {d} marble.",
        ("backward", "leftward", "forward", "rightward"),
    ),
    # The destination first, the direction as an adjective.
    Style(
        "Give the {d} globe a {x} neighbour, namely the {s} globe.",
        ("northern", "western", "southern", "eastern"),
    ),
    # A clock face seen from above.
    Style(
        "Imagine a clock face centred upon the {d} bead: the {s} bead ought to occupy {x} o'clock.",
        ("twelve", "nine", "six", "three"),
    ),
    # The relation said from the other ball.
    Style(
        "Have the {d} pearl finish close by, {o} its {s} companion.",
        ("due north of", "due west of", "due south of", "due east of"),
    ),
    # A suggestion.
    Style(
        "How about parking the {s} pellet {x} the {d} pellet?",
        (
            "a short way north of",
            "a short way west of",
            "a short way south of",
            "a short way east of",
        ),
    ),
    # Politeness.
    Style(
        "Kindly steer the {s} bauble around and let it rest {x} the {d} bauble.",
        ("in back of", "leftwards of", "forward of", "rightwards of"),
    ),
    # A wish with a comparative.
    Style(
        "If only the {s} spheroid were a little farther {x} than the {d} one!",
        ("back", "leftward", "forward", "rightward"),
    ),
    # A landmark.
    Style(
        "Using the {d} stone for a landmark, coax the {s} stone {x} of it.",
        ("northward", "westward", "southward", "eastward"),
    ),
)

EASY_DIRECTIONS = (
    ("backwards", "to the rear", "towards the back"),
    ("leftwards", "to the left", "towards the left"),
    ("forwards", "to the front", "towards the front"),
    ("rightwards", "to the right", "towards the right"),
)

EASY_FRAMES = (
    "Push the {b} ball {x}.",
    "Give the {b} ball a push {x}.",
    "Move the {b} ball {x}.",
    "Nudge the {b} ball {x}.",
    "Can you push the {b} ball {x}?",
    "Please send the {b} ball {x}.",
    "The {b} ball should go {x}.",
    "Make the {b} ball roll {x}.",
    "Let the {b} ball roll {x}.",
    "Hit the {b} ball so that it goes {x}.",
    "I want the {b} ball to travel {x}.",
    "Shove the {b} ball {x}.",
    "Shift the {b} ball {x} in one go.",
    "One push {x} for the {b} ball, please.",
    "Your task is to slide the {b} ball {x}.",
    "Choose the {b} ball and push it {x}.",
    "We need the {b} ball to move {x}.",
    "Drive the {b} ball {x} once.",
    "Take the {b} ball and tap it {x}.",
    "Roll the {b} ball {x} over the table.",
)

CLAUSE = "the {s} ball is {x} the {d} ball"

CONJUNCTION_FRAMES = (
    "Push the balls until {all}.",
    "Make sure that {all}.",
    "Arrange the balls so that {all}.",
    "All of this must hold at the same time: {all}.",
    "Keep pushing until {all}.",
    "In the end I want a table where {all}.",
)

ORDER_TEXTS = (
    "Line up the balls from left to right: red, blue, green, purple, cyan.",
    "Make a row with red at the left end, then blue, green, purple, and cyan at the right end.",
    "From left to right the balls should be red, blue, green, purple and cyan.",
    "Put the balls in one row, ordered red, blue, green, purple, cyan from the left.",
    "I want a straight row: red leftmost, then blue, then green, then purple, then cyan.",
    "Arrange all five balls in a line: from the left, red, blue, green, purple, cyan.",
    "Sort the balls by colour into a row, red first on the left, then blue, green, purple, cyan.",
    "Starting at the left, line the balls up as red, blue, green, purple, cyan.",
    "Every ball has its place in the row: red, blue, green, purple, cyan, left to right.",
    "Build a line of balls with blue right of red, green right of blue, purple right of green and "
    "cyan right of purple.",
    "Please form a row whose colours are red, blue, green, purple and cyan, counted from the left.",
    "Make the balls stand side by side in the order red, blue, green, purple, cyan, "
    "with red on the left.",
    "Can you set the balls in a row, left to right, as red, blue, green, purple, cyan?",
    "The red ball begins the row on the left; blue, green, purple and cyan follow to its right.",
    "Your task is a row of all the balls: red, blue, green, purple, cyan, read from the left.",
    "Move the balls into a line from red on the far left through blue, green and purple to cyan on "
    "the far right.",
    "We need the colours in sequence from left to right: red, blue, green, purple, cyan.",
    "Push the balls into a horizontal line, red, blue, green, purple, cyan, beginning at the left.",
    "Cyan goes to the right end of the row, purple left of it, then green, then blue, and red at "
    "the left end.",
    "Order the five balls along a line so that one reads red, blue, green, purple, cyan from left "
    "to right.",
)

SORT_TEXTS = (
    "Gather all the other balls around the green ball.",
    "Bring the red, blue, purple and cyan balls close to the green ball.",
    "Make the green ball the centre of a cluster of all five balls.",
    "Every other ball should be near the green ball.",
    "Surround the green ball with the other four balls.",
    "Push the other four balls close to the green one.",
    "Collect the balls tightly around the green ball.",
    "I want red, blue, purple and cyan all right next to green.",
    "Crowd the green ball with all the other balls.",
    "Put all the balls in a tight group with green in the middle.",
    "Can you move all four other balls up to the green ball?",
    "The green ball needs company: bring every other ball close to it.",
    "Your task is to cluster the balls around the green one.",
    "Keep pushing until each of the other balls is close to the green ball.",
    "Please pack the red, blue, purple and cyan balls around the green ball.",
    "No ball may stay far from the green ball.",
    "Assemble all the balls at the green ball.",
    "Let the four other balls meet at the green ball.",
    "We need all the balls huddled around the green ball.",
    "Shrink the distance to the green ball for each of the other four balls.",
)
