"""What all bodies of E2B's API have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Switch = Annotated[bool | None, Field(alias="allow_internet_access")]
"""The one name that is not in camel case there."""


class Body(BaseModel):
    """Names are in camel case there. Unknown fields are ignored: newer clients send more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)
