r"""Differentials of the NTK: B, P, R, S, U, whose columns are multiplied and whose rows mix.

Rows and columns are B[(13),(24)], P[(03),(12)], R[(01),(23)], S[(12),(34)], U[(14),(23)]. A column pair
is multiplied by $E = C_W \langle\sigma'\sigma'\rangle$ at each layer; rows obey

$$p_{03} \to C_W \langle\sigma''_0\sigma_3\rangle (b_{00} + p_{00}) + E\,p_{03}, \qquad
  s_{12} \to \langle Z_{12}\rangle b_{12} + E\,s_{12},$$
$$r_{01} \to \langle\partial_0 Y_{01}\rangle (b_{00} + p_{00}) + \langle Z_{01}\rangle p_{01} + E\,r_{01}$$

and b and u are multiplied by E (PDLT chapter infinity, section 3, rearranged).
"""

from finitewidth.theory.blocks import Blocks, FeatureMaps, PairMap
from finitewidth.theory.sources import Averages, Step

COLUMN = "e"


def differential_sources(step: Step, w: Averages) -> Blocks:
    """What one layer creates of B and, for smooth activations, of P, R, S and U."""
    C, lW, Th = step.C_W, step.lambda_W, step.Theta
    own = Th[:, :, None, None]
    first, crossed = Th[:, None, :, None], Th[None, :, None, :]  # Theta_ac and Theta_bd
    second = Th[:, None, None, :]  # Theta_ad
    slope4 = w.at("s's's's'", "abcd")
    blocks = {("b", COLUMN): C**2 * first * crossed * slope4}
    if not step.smooth:
        return blocks
    bent = w.at("s''s's's", "acdb")
    bent2 = w.at("s''s''s's'", "abcd")
    blocks["p", COLUMN] = C**2 * first * second * bent
    blocks["r", COLUMN] = C * first * second * (lW * bent + C * own * w.at("s'''s's's'", "abcd"))
    blocks["s", COLUMN] = C * first * crossed * (lW * slope4 + C * own * bent2)
    blocks["u", COLUMN] = C**2 * first * second * Th.T[None, :, :, None] * w.at("s''s''s's'", "acdb")
    return blocks


def differential_maps(step: Step) -> tuple[FeatureMaps, FeatureMaps]:
    """Row maps and column maps."""
    columns: FeatureMaps = {COLUMN: {COLUMN: step.E}}
    if not step.smooth:
        return {"b": {"b": step.E}}, columns
    assert step.moments.leading is not None
    lifted = step.C_W * step.moments.leading
    rows: FeatureMaps = {
        "b": {"b": step.E},
        "p": {"b": PairMap(lifted, None), "p": PairMap(lifted, step.E.both)},
        "r": {"b": PairMap(step.dY, None), "p": PairMap(step.dY, step.Z), "r": step.E},
        "s": {"b": PairMap(None, step.Z), "s": step.E},
        "u": {"u": step.E},
    }
    return rows, columns
