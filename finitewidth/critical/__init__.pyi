# The public names of the room and the module each lives in, as in `finitewidth/__init__.pyi`.

from .activations.susceptibilities import susceptibilities as susceptibilities
from .aspect_ratio import aspect as aspect
from .asymptotic_laws import asymptotes as asymptotes
from .fitted_exponents import exponents as exponents
from .mutual_information import information as information
from .ntk_shares import shares as shares
from .phases import phase_diagram as phase_diagram
