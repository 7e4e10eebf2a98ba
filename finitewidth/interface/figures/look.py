"""The look of results: one table of roles, which every figure reads.

Colours are those of Okabe and Ito. Colour never carries meaning alone: lines, markers and labels do as well.
"""

ROLES: dict[str, dict] = {
    "finite width": {"color": "#0072B2", "linewidth": 2.0, "dashes": None},
    "finite width, band": {"color": "#0072B2", "alpha": 0.25},
    "infinite width": {"color": "#000000", "linewidth": 1.4, "dashes": (5, 3)},
    "infinite width, band": {"color": "#000000", "alpha": 0.10},
    "sampled networks": {"color": "#D55E00", "linewidth": 1.4, "dashes": None},
    "further series": {"color": "#009E73", "linewidth": 2.0, "dashes": None},
    "one more series": {"color": "#CC79A7", "linewidth": 2.0, "dashes": None},
    "asymptote": {"color": "#009E73", "linewidth": 1.6, "dashes": (1.2, 1.6)},
}

# the same on a dark background: the lighter colours of Okabe and Ito, and white for black
_ON_DARK = {"#0072B2": "#56B4E9", "#000000": "#FFFFFF", "#D55E00": "#E69F00"}
ROLES_ON_DARK = {
    role: {**style, "color": _ON_DARK.get(style["color"], style["color"])} for role, style in ROLES.items()
}

# lines that differ in one thing, such as the width, and the markers that tell them apart without colour
SERIES = ("finite width", "further series", "one more series")
MARKERS = ("o", "s", "D", "^", "v")

# colours of everything that is neither theory nor sampled: data and edges, background, empty regions
INK, PAPER, SHADE = "#000000", "#FFFFFF", "#E6E6E6"

# negative, zero, positive entries of a matrix
MATRIX = ("#D55E00", PAPER, "#0072B2")
