"""The table [network] of a run file: widths and activations, or an input shape and layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finitewidth.interface.runs.toml_tables import check_keys
from finitewidth.network.mlp import MLP, network_from_dict
from finitewidth.network.network import Network

_PERCEPTRON = ("widths", "activation")
_LAYERS = ("input_shape", "layers")
_VARIANCES, _RATES, _ENSEMBLE = ("C_b", "C_W"), ("lambda_b", "lambda_W"), ("weights",)


@dataclass(frozen=True)
class NetworkTable:
    """A [network] whose keys are right. The network itself is made once the scale of its inputs is known."""

    fields: Mapping[str, Any]
    where: str  # the file, for errors

    def network(self, input_scale: float) -> Network:
        """The network; `input_scale`, the mean square of input components, matters if critical = true."""
        fields = {name: value for name, value in self.fields.items() if name != "critical"}
        try:
            network = network_from_dict(fields)
            if not self.fields.get("critical", False):
                return network
            rates = {name: fields[name] for name in (*_RATES, *_ENSEMBLE) if name in fields}
            if isinstance(network, MLP):
                return MLP.critical(network.widths, fields["activation"], **rates, input_scale=input_scale)
            return Network.critical(network.input_shape, *network.layers, input_scale=input_scale)
        except ValueError as error:
            raise ValueError(f"{self.where}: [network] {error}") from None


def read_network(table: Mapping, where: str) -> NetworkTable:
    """A table whose keys are checked, which needs no data."""
    if any(name in table for name in _LAYERS):
        _check_layers(table, where)
    else:
        _check_perceptron(table, where)
    return NetworkTable(table, where)


def _check_layers(table: Mapping, where: str) -> None:
    for name in (*_PERCEPTRON, *_VARIANCES, *_RATES, *_ENSEMBLE):
        if name in table:
            raise ValueError(
                f"{where}: [network] {name} cannot stand beside input_shape and layers; remove it."
            )
    check_keys(table, _LAYERS, ("critical",), where=f"{where}: [network]")
    _as_critical(table, where)
    layers = table["layers"]
    for layer in layers if isinstance(layers, list) else ():
        kind = layer.get("kind") if isinstance(layer, dict) else layer
        if not isinstance(kind, str):
            raise ValueError(
                f"{where}: [network] layers has {layer!r}; write the name of an activation, or a table such "
                'as { kind = "Dense", width = 64 }.'
            )


def _check_perceptron(table: Mapping, where: str) -> None:
    optional = (*_PERCEPTRON, *_VARIANCES, *_RATES, *_ENSEMBLE, "critical")
    check_keys(table, (), optional, where=f"{where}: [network]")
    for name in _PERCEPTRON:
        if name not in table:
            raise ValueError(f"{where}: [network] needs a key {name!r}; add it.")
    critical = _as_critical(table, where)
    for name in _VARIANCES:
        if critical and name in table:
            raise ValueError(
                f"{where}: [network] {name} cannot stand beside critical = true, which sets it; remove one."
            )


def _as_critical(table: Mapping, where: str) -> bool:
    critical = table.get("critical", False)
    if not isinstance(critical, bool):
        raise ValueError(f"{where}: [network] critical must be true or false, got {critical!r}.")
    return critical
