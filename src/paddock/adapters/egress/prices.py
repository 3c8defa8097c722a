"""Prices of models that come with Paddock: a table, as data."""

import tomllib
from importlib.resources import files

from paddock.domain.broker.models import Price, Prices


def shipped_prices() -> Prices:
    kept = tomllib.loads(files(__package__).joinpath("prices.toml").read_text())
    table = {model: Price(*map(float, each)) for model, each in kept["prices"].items()}
    return Prices(table, kept["as_of"], kept["note"])
